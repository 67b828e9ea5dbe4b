//! A transformer that predicts the next token, with its loss.

use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::corpus::Batch;

/// The sizes of a [`Gpt`].
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// The most tokens that it reads.
    pub context: usize,
    /// Elements that represent a token.
    pub width: usize,
    /// Attention heads, of `width / heads` elements each.
    pub heads: usize,
    /// Layers.
    pub layers: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { context: 64, width: 64, heads: 4, layers: 2 }
    }
}

/// The transformer.
#[derive(Module, Debug)]
pub struct Gpt<B: Backend> {
    token_embedding: Embedding<B>,
    position_embedding: Embedding<B>,
    encoder: TransformerEncoder<B>,
    output: Linear<B>,
}

impl<B: Backend> Gpt<B> {
    /// Creates an untrained model.
    ///
    /// # Panics
    ///
    /// Panics if the number of heads does not divide the width.
    pub fn new(sizes: Sizes, vocabulary_size: usize, device: &B::Device) -> Self {
        let Sizes { context, width, heads, layers } = sizes;
        let encoder = TransformerEncoderConfig::new(width, 4 * width, heads, layers);
        Self {
            token_embedding: EmbeddingConfig::new(vocabulary_size, width).init(device),
            position_embedding: EmbeddingConfig::new(context, width).init(device),
            encoder: encoder.with_norm_first(true).with_dropout(0.0).init(device),
            output: LinearConfig::new(width, vocabulary_size).init(device),
        }
    }

    /// Returns logits `[batch, length, vocabulary]` of the next token at each position of `tokens`
    /// `[batch, length]`.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let [batch, length] = tokens.dims();
        let device = tokens.device();
        let positions = Tensor::arange(0..length as i64, &device).unsqueeze::<2>();
        let x = self.token_embedding.forward(tokens) + self.position_embedding.forward(positions);
        let mask = generate_autoregressive_mask(batch, length, &device);
        self.output.forward(self.encoder.forward(TransformerEncoderInput::new(x).mask_attn(mask)))
    }

    /// Returns the mean cross entropy of the predictions for a batch, in nats per token.
    pub fn loss(&self, batch: Batch<B>) -> Tensor<B, 1> {
        let logits = self.forward(batch.inputs);
        let [count, length, vocabulary] = logits.dims();
        let cross_entropy = CrossEntropyLossConfig::new().init(&logits.device());
        cross_entropy.forward(
            logits.reshape([count * length, vocabulary]),
            batch.targets.reshape([count * length]),
        )
    }
}
