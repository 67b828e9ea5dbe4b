//! Four models as a user would write them with Burn, and the names that PyTorch has for their tensors.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    BatchNormConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
    PaddingConfig2d,
};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use thiserror::Error;

use crate::fold::ConvNorm;

/// Why a model has no output for an input.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum InputError {
    /// It has another shape. A 0 stands for any size.
    #[error("the model reads inputs of the shape {expected:?}, where 0 is any size, not {found:?}")]
    Shape {
        /// The shape that the model reads.
        expected: Vec<usize>,
        /// The shape of the input.
        found: Vec<usize>,
    },
    /// It is too long.
    #[error("the model reads at most {most} tokens, not {found}")]
    Length {
        /// The tokens of the longest input.
        most: usize,
        /// The tokens of this one.
        found: usize,
    },
    /// A token is outside the vocabulary.
    #[error("{token} is no token: those are integers below {vocabulary}")]
    Token {
        /// The token.
        token: String,
        /// The number of tokens.
        vocabulary: usize,
    },
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(String),
}

/// Reads a result from the device.
///
/// # Errors
///
/// Returns an error if the device fails.
pub fn data<B: Backend, const D: usize>(x: Tensor<B, D>) -> Result<TensorData, InputError> {
    x.try_into_data().map_err(|error| InputError::Device(error.to_string()))
}

/// Checks the shape of an input, where 0 is any size but 0.
///
/// # Errors
///
/// Returns an error if the shape is another.
pub fn check_shape(input: &TensorData, expected: &[usize]) -> Result<(), InputError> {
    let found = input.shape.to_vec();
    let fits = |(size, expected): (&usize, &usize)| match expected {
        0 => *size > 0,
        _ => size == expected,
    };
    if found.len() == expected.len() && found.iter().zip(expected).all(fits) {
        return Ok(());
    }
    Err(InputError::Shape { expected: expected.to_vec(), found })
}

/// A model whose weights come from PyTorch.
pub trait Imported<B: Backend>: Module<B> {
    /// Patterns of names of tensors here, and what PyTorch has in their place. Tensors that get the same name are parts
    /// of one, along its first axis, in the order of the module.
    const NAMES: &'static [(&'static str, &'static str)];

    /// Creates the model, with weights that are to be replaced.
    fn new(device: &B::Device) -> Self;

    /// Returns the results for an input.
    ///
    /// # Errors
    ///
    /// Returns an error if the model does not read such an input, or the device fails.
    fn run(&self, input: TensorData, device: &B::Device) -> Result<TensorData, InputError>;

    /// Folds batch norms into convolutions, for inference.
    #[must_use]
    fn folded(self) -> Self {
        self
    }
}

/// Three linear layers.
#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    fc1: Linear<B>,
    fc2: Linear<B>,
    fc3: Linear<B>,
}

impl<B: Backend> Imported<B> for Mlp<B> {
    const NAMES: &'static [(&'static str, &'static str)] = &[];

    fn new(device: &B::Device) -> Self {
        let [fc1, fc2, fc3] =
            [[6, 16], [16, 16], [16, 4]].map(|[from, to]| LinearConfig::new(from, to).init(device));
        Self { fc1, fc2, fc3 }
    }

    fn run(&self, input: TensorData, device: &B::Device) -> Result<TensorData, InputError> {
        check_shape(&input, &[0, 6])?;
        let x = Tensor::<B, 2>::from_data(input, device);
        let x = relu(self.fc2.forward(relu(self.fc1.forward(x))));
        data(self.fc3.forward(x))
    }
}

/// Returns a convolution of 3 by 3 with zeros around the image, or of 1 by 1, and a batch norm.
fn conv_norm<B: Backend>(
    [from, to]: [usize; 2],
    [size, stride]: [usize; 2],
    has_bias: bool,
    device: &B::Device,
) -> ConvNorm<B> {
    let padding = size / 2;
    let conv: Conv2d<B> = Conv2dConfig::new([from, to], [size, size])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(padding, padding, padding, padding))
        .with_bias(has_bias)
        .init(device);
    ConvNorm { conv, norm: Some(BatchNormConfig::new(to).init(device)) }
}

/// Returns the mean of each channel.
fn pooled<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 2> {
    let [images, channels, height, width] = x.dims();
    x.reshape([images, channels, height * width]).mean_dim(2).reshape([images, channels])
}

/// Two convolutions with batch norm, and a linear layer.
#[derive(Module, Debug)]
pub struct Cnn<B: Backend> {
    first: ConvNorm<B>,
    second: ConvNorm<B>,
    fc: Linear<B>,
}

impl<B: Backend> Imported<B> for Cnn<B> {
    const NAMES: &'static [(&'static str, &'static str)] = &[
        (r"^first\.conv\.", "conv1."),
        (r"^first\.norm\.", "bn1."),
        (r"^second\.conv\.", "conv2."),
        (r"^second\.norm\.", "bn2."),
    ];

    fn new(device: &B::Device) -> Self {
        Self {
            first: conv_norm([1, 8], [3, 1], true, device),
            second: conv_norm([8, 16], [3, 2], false, device),
            fc: LinearConfig::new(16, 10).init(device),
        }
    }

    fn run(&self, input: TensorData, device: &B::Device) -> Result<TensorData, InputError> {
        check_shape(&input, &[0, 1, 0, 0])?;
        let x = Tensor::<B, 4>::from_data(input, device);
        let x = relu(self.second.forward(relu(self.first.forward(x))));
        data(self.fc.forward(pooled(x)))
    }

    fn folded(self) -> Self {
        Self { first: self.first.folded(), second: self.second.folded(), ..self }
    }
}

/// A block of a [`ResNet`]: two convolutions, whose result is added to the input.
#[derive(Module, Debug)]
pub struct Block<B: Backend> {
    first: ConvNorm<B>,
    second: ConvNorm<B>,
    /// Gives the input the shape of the output, if that is another.
    shortcut: Option<ConvNorm<B>>,
}

impl<B: Backend> Block<B> {
    fn new([from, to]: [usize; 2], stride: usize, device: &B::Device) -> Self {
        let has_shortcut = stride > 1 || from != to;
        Self {
            first: conv_norm([from, to], [3, stride], false, device),
            second: conv_norm([to, to], [3, 1], false, device),
            shortcut: has_shortcut.then(|| conv_norm([from, to], [1, stride], false, device)),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let y = self.second.forward(relu(self.first.forward(x.clone())));
        let x = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x),
            None => x,
        };
        relu(x + y)
    }

    fn folded(self) -> Self {
        Self {
            first: self.first.folded(),
            second: self.second.folded(),
            shortcut: self.shortcut.map(ConvNorm::folded),
        }
    }
}

/// A small ResNet, with the names of torchvision.
#[derive(Module, Debug)]
pub struct ResNet<B: Backend> {
    stem: ConvNorm<B>,
    blocks: Vec<Block<B>>,
    fc: Linear<B>,
}

impl<B: Backend> Imported<B> for ResNet<B> {
    const NAMES: &'static [(&'static str, &'static str)] = &[
        (r"^stem\.conv\.", "conv1."),
        (r"^stem\.norm\.", "bn1."),
        (r"^blocks\.0\.", "layer1.0."),
        (r"^blocks\.1\.", "layer2.0."),
        (r"\.first\.conv\.", ".conv1."),
        (r"\.first\.norm\.", ".bn1."),
        (r"\.second\.conv\.", ".conv2."),
        (r"\.second\.norm\.", ".bn2."),
        (r"\.shortcut\.conv\.", ".downsample.0."),
        (r"\.shortcut\.norm\.", ".downsample.1."),
    ];

    fn new(device: &B::Device) -> Self {
        Self {
            stem: conv_norm([3, 8], [3, 1], false, device),
            blocks: vec![Block::new([8, 8], 1, device), Block::new([8, 16], 2, device)],
            fc: LinearConfig::new(16, 10).init(device),
        }
    }

    fn run(&self, input: TensorData, device: &B::Device) -> Result<TensorData, InputError> {
        check_shape(&input, &[0, 3, 0, 0])?;
        let x = relu(self.stem.forward(Tensor::<B, 4>::from_data(input, device)));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        data(self.fc.forward(pooled(x)))
    }

    fn folded(self) -> Self {
        Self {
            stem: self.stem.folded(),
            blocks: self.blocks.into_iter().map(Block::folded).collect(),
            fc: self.fc,
        }
    }
}

/// The sizes of a [`Transformer`].
const WIDTH: usize = 16;
const VOCABULARY: usize = 32;
const LENGTH: usize = 12;

/// Embeddings, an encoder of two layers, and scores of each token.
#[derive(Module, Debug)]
pub struct Transformer<B: Backend> {
    embed: Embedding<B>,
    positions: Embedding<B>,
    encoder: TransformerEncoder<B>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

impl<B: Backend> Imported<B> for Transformer<B> {
    // PyTorch has one tensor for queries, keys and values. Burn's norms have their numbers the other way round: the
    // second one is before attention.
    const NAMES: &'static [(&'static str, &'static str)] = &[
        (r"\.mha\.(?:query|key|value)\.", ".self_attn.in_proj_"),
        (r"\.mha\.output\.", ".self_attn.out_proj."),
        (r"\.pwff\.linear_inner\.", ".linear1."),
        (r"\.pwff\.linear_outer\.", ".linear2."),
        (r"\.norm_2\.", ".norm1."),
        (r"\.norm_1\.", ".norm2."),
    ];

    fn new(device: &B::Device) -> Self {
        let encoder = TransformerEncoderConfig::new(WIDTH, 2 * WIDTH, 2, 2)
            .with_norm_first(true)
            .with_dropout(0.0);
        Self {
            embed: EmbeddingConfig::new(VOCABULARY, WIDTH).init(device),
            positions: EmbeddingConfig::new(LENGTH, WIDTH).init(device),
            encoder: encoder.init(device),
            norm: LayerNormConfig::new(WIDTH).init(device),
            head: LinearConfig::new(WIDTH, VOCABULARY).init(device),
        }
    }

    fn run(&self, input: TensorData, device: &B::Device) -> Result<TensorData, InputError> {
        check_shape(&input, &[0, 0])?;
        let length = input.shape[1];
        if length > LENGTH {
            return Err(InputError::Length { most: LENGTH, found: length });
        }
        let is_token =
            |token: &f64| *token >= 0.0 && *token < VOCABULARY as f64 && token.fract() == 0.0;
        if let Some(token) = input.iter::<f64>().find(|token| !is_token(token)) {
            return Err(InputError::Token { token: token.to_string(), vocabulary: VOCABULARY });
        }
        let tokens = Tensor::<B, 2, Int>::from_data(input.convert::<i32>(), device);
        let positions = Tensor::arange(0..length as i64, device).unsqueeze::<2>();
        let x = self.embed.forward(tokens) + self.positions.forward(positions);
        let x = self.encoder.forward(TransformerEncoderInput::new(x));
        data(self.head.forward(self.norm.forward(x)))
    }
}
