//! The models: a transformer encoder and a network of convolutions, of Burn's modules.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::{B, Example};

const CLASSES: usize = 10;
/// The sizes of the transformer: elements of a token, and tokens of a sample.
const WIDTH: usize = 128;
const SEQUENCE: usize = 64;

/// Two layers of a transformer, and a classifier of the mean of the sequence.
#[derive(Module, Debug)]
pub struct Transformer<B: Backend> {
    encoder: TransformerEncoder<B>,
    last: Linear<B>,
}

impl Example for Transformer<Autodiff<Wgsl>> {
    const NAME: &'static str = "transformer";

    fn new(device: &WgslDevice) -> Self {
        let encoder = TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, 4, 2).with_dropout(0.0);
        Self { encoder: encoder.init(device), last: LinearConfig::new(WIDTH, CLASSES).init(device) }
    }

    fn loss(&self, batch: usize, device: &WgslDevice) -> Tensor<B, 1> {
        let x = normal([batch, SEQUENCE, WIDTH], device);
        let x = self.encoder.forward(TransformerEncoderInput::new(x));
        cross_entropy(self.last.forward(x.mean_dim(1).flatten::<2>(1, 2)))
    }
}

/// Four convolutions on images of 32 x 32, the second half with half the size, and a classifier.
#[derive(Module, Debug)]
pub struct Cnn<B: Backend> {
    convolutions: Vec<Conv2d<B>>,
    last: Linear<B>,
}

impl Example for Cnn<Autodiff<Wgsl>> {
    const NAME: &'static str = "CNN";

    fn new(device: &WgslDevice) -> Self {
        let convolution = |channels, stride| {
            Conv2dConfig::new(channels, [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .with_stride([stride; 2])
                .init(device)
        };
        Self {
            convolutions: vec![
                convolution([3, 32], 1),
                convolution([32, 32], 1),
                convolution([32, 64], 2),
                convolution([64, 64], 1),
            ],
            last: LinearConfig::new(64, CLASSES).init(device),
        }
    }

    fn loss(&self, batch: usize, device: &WgslDevice) -> Tensor<B, 1> {
        let mut x = normal([batch, 3, 32, 32], device);
        for convolution in &self.convolutions {
            x = relu(convolution.forward(x));
        }
        cross_entropy(self.last.forward(x.mean_dim(2).mean_dim(3).flatten::<2>(1, 3)))
    }
}

fn normal<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<B, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Returns the loss of logits `[batch, CLASSES]` for fixed labels.
fn cross_entropy(logits: Tensor<B, 2>) -> Tensor<B, 1> {
    let device = logits.device();
    let batch = logits.dims()[0] as i64;
    let labels = Tensor::<B, 1, Int>::arange(0..batch, &device) % CLASSES as i64;
    CrossEntropyLossConfig::new().init(&device).forward(logits, labels)
}
