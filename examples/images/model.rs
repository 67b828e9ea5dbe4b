//! Two networks: a small one for images of 28 pixels, and ResNet-18.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::nn::{
    BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig, PaddingConfig2d,
};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

use crate::sources::Format;

/// The networks of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Two convolutions and two linear layers.
    Cnn,
    /// ResNet-18 (K. He et al., Deep residual learning for image recognition, 2016).
    Resnet18,
}

/// A network that returns a score for each class.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of them")]
pub enum Network<B: Backend> {
    Cnn(Cnn<B>),
    ResNet(ResNet<B>),
}

impl<B: Backend> Network<B> {
    /// Creates an untrained network for images of a format.
    pub fn new(kind: Kind, format: Format, classes: usize, device: &B::Device) -> Self {
        match kind {
            Kind::Cnn => Self::Cnn(Cnn::new(format, classes, device)),
            Kind::Resnet18 => Self::ResNet(ResNet::new(format, classes, device)),
        }
    }

    /// Returns the scores `[n, classes]` of images `[n, channels, side, side]`.
    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        match self {
            Self::Cnn(cnn) => cnn.forward(images),
            Self::ResNet(resnet) => {
                let x = resnet.stem.forward(images);
                let x = resnet.blocks.iter().fold(x, |x, block| block.forward(x));
                resnet.head(x)
            }
        }
    }
}

/// Two convolutions with pooling, and two linear layers with dropout.
#[derive(Module, Debug)]
pub struct Cnn<B: Backend> {
    convs: [Conv2d<B>; 2],
    pool: MaxPool2d,
    hidden: Linear<B>,
    dropout: Dropout,
    output: Linear<B>,
}

impl<B: Backend> Cnn<B> {
    fn new(Format { channels, side }: Format, classes: usize, device: &B::Device) -> Self {
        let conv = |from, to| {
            let config = Conv2dConfig::new([from, to], [3, 3]);
            config.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device)
        };
        let pooled = side / 2 / 2;
        Self {
            convs: [conv(channels, 32), conv(32, 64)],
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            hidden: LinearConfig::new(64 * pooled * pooled, 128).init(device),
            dropout: DropoutConfig::new(0.3).init(),
            output: LinearConfig::new(128, classes).init(device),
        }
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let pooled = |x, conv: &Conv2d<B>| self.pool.forward(relu(conv.forward(x)));
        let x = self.convs.iter().fold(images, pooled).flatten(1, 3);
        self.output.forward(self.dropout.forward(relu(self.hidden.forward(x))))
    }
}

/// ResNet-18. Images of at most 64 pixels a side keep their size in the stem.
#[derive(Module, Debug)]
pub struct ResNet<B: Backend> {
    pub stem: Stem<B>,
    pub blocks: Vec<Block<B>>,
    pool: AdaptiveAvgPool2d,
    output: Linear<B>,
}

impl<B: Backend> ResNet<B> {
    fn new(Format { channels, side }: Format, classes: usize, device: &B::Device) -> Self {
        let mut blocks = Vec::new();
        let mut width = 64;
        for (stage, to) in [64, 128, 256, 512].into_iter().enumerate() {
            for position in 0..2 {
                let stride = if stage > 0 && position == 0 { 2 } else { 1 };
                blocks.push(Block::new([width, to], stride, device));
                width = to;
            }
        }
        Self {
            stem: Stem::new(channels, side > 64, device),
            blocks,
            pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            output: LinearConfig::new(512, classes).init(device),
        }
    }

    /// Returns the scores from the result of the last block.
    pub fn head(&self, x: Tensor<B, 4>) -> Tensor<B, 2> {
        self.output.forward(self.pool.forward(x).flatten(1, 3))
    }
}

/// A convolution without a bias, and batch normalisation.
#[derive(Module, Debug)]
struct ConvNorm<B: Backend> {
    conv: Conv2d<B>,
    norm: BatchNorm<B>,
}

impl<B: Backend> ConvNorm<B> {
    fn new(channels: [usize; 2], size: usize, stride: usize, device: &B::Device) -> Self {
        let pad = size / 2;
        let config = Conv2dConfig::new(channels, [size, size])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(pad, pad, pad, pad))
            .with_bias(false);
        Self { conv: config.init(device), norm: BatchNormConfig::new(channels[1]).init(device) }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.norm.forward(self.conv.forward(x))
    }
}

/// The first layer of a ResNet.
#[derive(Module, Debug)]
pub struct Stem<B: Backend> {
    conv: ConvNorm<B>,
    pool: Option<MaxPool2d>,
}

impl<B: Backend> Stem<B> {
    fn new(channels: usize, shrinks: bool, device: &B::Device) -> Self {
        let pool = MaxPool2dConfig::new([3, 3]).with_strides([2, 2]);
        let pool = pool.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
        let (size, stride) = if shrinks { (7, 2) } else { (3, 1) };
        Self {
            conv: ConvNorm::new([channels, 64], size, stride, device),
            pool: shrinks.then(|| pool.init()),
        }
    }

    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 4> {
        let x = relu(self.conv.forward(images));
        match &self.pool {
            Some(pool) => pool.forward(x),
            None => x,
        }
    }
}

/// Two convolutions, and their input added to their result.
#[derive(Module, Debug)]
pub struct Block<B: Backend> {
    first: ConvNorm<B>,
    second: ConvNorm<B>,
    /// Fits the input to the result, if their sizes differ.
    shortcut: Option<ConvNorm<B>>,
}

impl<B: Backend> Block<B> {
    fn new([from, to]: [usize; 2], stride: usize, device: &B::Device) -> Self {
        let fits = stride == 1 && from == to;
        Self {
            first: ConvNorm::new([from, to], 3, stride, device),
            second: ConvNorm::new([to, to], 3, 1, device),
            shortcut: (!fits).then(|| ConvNorm::new([from, to], 1, stride, device)),
        }
    }

    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let kept = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x.clone()),
            None => x.clone(),
        };
        relu(self.second.forward(relu(self.first.forward(x))) + kept)
    }
}
