//! The training step.

use burn::module::AutodiffModule;
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use crate::corpus::Batch;
use crate::model::Gpt;

/// The optimizer of the example.
pub fn adam<B: AutodiffBackend>() -> OptimizerAdaptor<Adam, Gpt<B>, B> {
    AdamConfig::new().with_epsilon(1e-8).init()
}

/// A model with its optimizer.
pub struct Learner<B: AutodiffBackend, O> {
    /// The model.
    pub model: Gpt<B>,
    optimizer: O,
}

impl<B: AutodiffBackend, O: Optimizer<Gpt<B>, B>> Learner<B, O> {
    /// Creates a learner.
    pub fn new(model: Gpt<B>, optimizer: O) -> Self {
        Self { model, optimizer }
    }

    /// Returns the gradients of a loss: the backward pass of a step.
    pub fn gradients(&self, loss: Tensor<B, 1>) -> GradientsParams {
        GradientsParams::from_grads(loss.backward(), &self.model)
    }

    /// Updates the parameters: the end of a step.
    ///
    /// Takes `self` by value, so that each weight has a single owner and can be updated in place.
    #[must_use]
    pub fn update(mut self, gradients: GradientsParams, learning_rate: f64) -> Self {
        self.model = self.optimizer.step(learning_rate, self.model, gradients);
        self
    }

    /// Returns the model for inference.
    pub fn valid(&self) -> Gpt<B::InnerBackend> {
        self.model.valid()
    }
}

/// Returns the mean cross entropy of the predictions for a batch, in nats per token: the forward pass
/// of a step.
pub fn loss<B: Backend>(model: &Gpt<B>, batch: Batch<B>) -> Tensor<B, 1> {
    let logits = model.forward(batch.inputs);
    let [count, length, vocabulary] = logits.dims();
    let cross_entropy: CrossEntropyLoss<B> = CrossEntropyLossConfig::new().init(&logits.device());
    cross_entropy.forward(
        logits.reshape([count * length, vocabulary]),
        batch.targets.reshape([count * length]),
    )
}
