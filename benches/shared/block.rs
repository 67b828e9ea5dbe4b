//! A layer of a transformer, with dropout, that can be a segment of a model.

use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::transformer::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
use burn::nn::{Dropout, DropoutConfig, LayerNorm, LayerNormConfig};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// Self-attention of four heads and a feed-forward network, normalised before.
#[derive(Module, Debug)]
pub struct Block<B: Backend> {
    attention: MultiHeadAttention<B>,
    feed_forward: PositionWiseFeedForward<B>,
    norms: [LayerNorm<B>; 2],
    dropout: Dropout,
}

impl<B: Backend> Block<B> {
    pub fn new(width: usize, device: &B::Device) -> Self {
        let attention = MultiHeadAttentionConfig::new(width, 4).with_dropout(0.0);
        let feed_forward = PositionWiseFeedForwardConfig::new(width, 4 * width).with_dropout(0.1);
        Self {
            attention: attention.init(device),
            feed_forward: feed_forward.init(device),
            norms: [(); 2].map(|()| LayerNormConfig::new(width).init(device)),
            dropout: DropoutConfig::new(0.2).init(),
        }
    }

    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let normed = MhaInput::self_attn(self.norms[0].forward(x.clone()));
        let x = x + self.dropout.forward(self.attention.forward(normed).context);
        x.clone() + self.feed_forward.forward(self.norms[1].forward(x))
    }
}
