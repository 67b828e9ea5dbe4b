//! Convolutions with the batch norm behind them, which at inference are one convolution.

use burn::module::{Module, Param};
use burn::nn::BatchNorm;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// A convolution, and a batch norm unless it is folded in.
#[derive(Module, Debug)]
pub struct ConvNorm<B: Backend> {
    pub conv: Conv2d<B>,
    pub norm: Option<BatchNorm<B>>,
}

impl<B: Backend> ConvNorm<B> {
    /// Convolves images and normalizes the result.
    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let x = self.conv.forward(x);
        match &self.norm {
            Some(norm) => norm.forward(x),
            None => x,
        }
    }

    /// Folds the batch norm into the convolution, for inference.
    ///
    /// With the statistics of training, a norm is `scale * x + shift` for each channel, where `scale = gamma /
    /// sqrt(variance + epsilon)` and `shift = beta - mean * scale` (S. Ioffe and C. Szegedy, Batch Normalization, 2015,
    /// algorithm 2). The convolution takes the scale into its weights, and the shift into its bias.
    #[must_use]
    pub fn folded(mut self) -> Self {
        let Some(norm) = self.norm.take() else { return self };
        let scale = norm.gamma.val() / (norm.running_var.value() + norm.epsilon).sqrt();
        let shift = norm.beta.val() - norm.running_mean.value() * scale.clone();
        let bias = match self.conv.bias.take() {
            Some(bias) => bias.val() * scale.clone() + shift,
            None => shift,
        };
        let [channels] = scale.dims();
        let weight = self.conv.weight.val() * scale.reshape([channels, 1, 1, 1]);
        self.conv.weight = Param::from_tensor(weight);
        self.conv.bias = Some(Param::from_tensor(bias));
        self
    }
}
