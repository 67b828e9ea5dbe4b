//! A transformer that predicts the next token, with its loss.

use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput, TransformerEncoderLayer,
};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Int, Tensor};
use burn_wgsl::generate::{KvCache, KvCacheConfig};

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

    /// Returns the most tokens that it reads.
    pub fn context(&self) -> usize {
        self.position_embedding.weight.shape()[0]
    }

    /// Returns the device of the parameters.
    pub fn device(&self) -> B::Device {
        self.token_embedding.weight.device()
    }

    /// Returns the linear layers.
    pub(crate) fn linear_layers(&mut self) -> impl Iterator<Item = &mut Linear<B>> {
        let layers = self.encoder.layers.iter_mut().flat_map(|layer| {
            let (mha, pwff) = (&mut layer.mha, &mut layer.pwff);
            [
                &mut mha.query,
                &mut mha.key,
                &mut mha.value,
                &mut mha.output,
                &mut pwff.linear_inner,
                &mut pwff.linear_outer,
            ]
        });
        layers.chain([&mut self.output])
    }

    /// Returns an empty cache for a text.
    pub fn cache(&self) -> KvCache<B> {
        let TransformerEncoder { n_layers: layers, n_heads: heads, d_model, .. } = self.encoder;
        let config = KvCacheConfig {
            layers,
            sequences: 1,
            heads,
            capacity: self.context(),
            width: d_model / heads,
        };
        KvCache::new(config, self.token_embedding.weight.val().dtype(), &self.device())
    }

    /// Reads `tokens` after those of a cache. Returns the logits `[1, vocabulary]` of the token after the last one.
    ///
    /// # Panics
    ///
    /// Panics if there is no token, the cache has no room, or it is one of another model.
    pub fn read(&self, tokens: Tensor<B, 1, Int>, cache: &mut KvCache<B>) -> Tensor<B, 2> {
        let ([new], first) = (tokens.dims(), cache.len(0) as i64);
        let positions = Tensor::arange(first..first + new as i64, &tokens.device());
        let x = self.token_embedding.forward(tokens.unsqueeze::<2>())
            + self.position_embedding.forward(positions.unsqueeze::<2>());
        let layers = self.encoder.layers.iter().enumerate();
        let x = layers.fold(x, |x, (index, layer)| read_layer(layer, index, x, cache));
        cache.advance(new);
        let last = x.narrow(1, new - 1, 1);
        self.output.forward(last).squeeze_dim::<2>(1)
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

/// Returns the output of a layer for new tokens `[1, tokens, width]`, after those of a cache.
fn read_layer<B: Backend>(
    layer: &TransformerEncoderLayer<B>,
    index: usize,
    x: Tensor<B, 3>,
    cache: &mut KvCache<B>,
) -> Tensor<B, 3> {
    let [_, tokens, width] = x.dims();
    let KvCacheConfig { heads, width: head, .. } = cache.config();
    let normed = layer.norm_2.forward(x.clone());
    let by_head = |linear: &Linear<B>| {
        linear.forward(normed.clone()).reshape([1, tokens, heads, head]).swap_dims(1, 2)
    };
    let (keys, values) = (by_head(&layer.mha.key), by_head(&layer.mha.value));
    let [keys, values] = cache.append(index, Tensor::stack(vec![keys, values], 0));
    let options = AttentionModuleOptions { is_causal: tokens > 1, ..Default::default() };
    let y = attention(by_head(&layer.mha.query), keys, values, None, None, options);
    let y = y.swap_dims(1, 2).reshape([1, tokens, width]);
    let x = x + layer.mha.output.forward(y);
    x.clone() + layer.pwff.forward(layer.norm_1.forward(x))
}
