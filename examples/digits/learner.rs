//! The training step.

use anyhow::Result;
use burn::module::{AutodiffModule, Module};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Int, Tensor};

use crate::model::Model;

type Format = BinBytesRecorder<FullPrecisionSettings>;

/// Adam, for the model.
pub type ModelAdam<B> = OptimizerAdaptor<Adam, Model<B>, B>;

/// Returns a new Adam optimiser.
pub fn adam<B: AutodiffBackend>() -> ModelAdam<B> {
    AdamConfig::new().with_epsilon(1e-8).init()
}

/// A model with its loss function and its optimiser.
#[derive(Clone)]
pub struct Learner<B: AutodiffBackend, O = ModelAdam<B>> {
    pub model: Model<B>,
    loss: CrossEntropyLoss<B>,
    pub optimizer: O,
}

impl<B: AutodiffBackend> Learner<B> {
    /// Creates a learner with a new Adam optimiser.
    pub fn new(model: Model<B>, device: &B::Device) -> Self {
        Self::with_optimizer(model, adam(), device)
    }
}

impl<B: AutodiffBackend, O: Optimizer<Model<B>, B>> Learner<B, O> {
    /// Creates a learner.
    pub fn with_optimizer(model: Model<B>, optimizer: O, device: &B::Device) -> Self {
        Self { model, loss: CrossEntropyLossConfig::new().init(device), optimizer }
    }

    /// Runs one training step on images `[batch, 1, 8, 8]` with labels `[batch]`. Returns the loss
    /// before the step as a tensor `[1]` on the device.
    ///
    /// Takes `self` by value, so that each weight has a single owner and can be updated in place.
    pub fn step(
        self,
        images: Tensor<B, 4>,
        labels: Tensor<B, 1, Int>,
        learning_rate: f64,
    ) -> (Self, Tensor<B::InnerBackend, 1>) {
        let loss = self.loss(images, labels);
        let loss_value = loss.clone().inner();
        let gradients = self.gradients(loss);
        (self.update(gradients, learning_rate), loss_value)
    }

    /// Returns the loss of a batch: the forward pass of a step.
    pub fn loss(&self, images: Tensor<B, 4>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
        self.loss_of(&self.model, images, labels)
    }

    /// Returns the loss of a batch with another model.
    pub fn loss_of(
        &self,
        model: &Model<B>,
        images: Tensor<B, 4>,
        labels: Tensor<B, 1, Int>,
    ) -> Tensor<B, 1> {
        self.loss.forward(model.forward(images), labels)
    }

    /// Returns the gradients of a loss: the backward pass of a step.
    pub fn gradients(&self, loss: Tensor<B, 1>) -> GradientsParams {
        GradientsParams::from_grads(loss.backward(), &self.model)
    }

    /// Updates the parameters: the end of a step.
    #[must_use]
    pub fn update(mut self, gradients: GradientsParams, learning_rate: f64) -> Self {
        self.model = self.optimizer.step(learning_rate, self.model, gradients);
        self
    }

    /// Returns the weights and the state of the optimiser as bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the device fails, or they cannot be encoded.
    pub fn state(&self) -> Result<Vec<u8>> {
        let record = (self.model.clone().into_record(), self.optimizer.to_record());
        Ok(Recorder::<B>::record(&Format::new(), record, ())?)
    }

    /// Returns the learner with the weights and the state of the optimiser that
    /// [`state`](Self::state) returned.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not such a state.
    pub fn with_state(mut self, state: &[u8], device: &B::Device) -> Result<Self> {
        let (model, optimizer) = Format::new().load(state.to_vec(), device)?;
        self.model = self.model.load_record(model);
        self.optimizer = self.optimizer.load_record(optimizer);
        Ok(self)
    }

    /// Returns the model for inference, without gradients and dropout.
    pub fn valid(&self) -> Model<B::InnerBackend> {
        self.model.valid()
    }
}
