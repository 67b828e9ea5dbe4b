//! A model that learns: one training step.

use burn::module::AutodiffModule;
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Int, Tensor};

use crate::model::Model;

/// A model, what it is told by, and how it moves.
pub struct Learner<B: AutodiffBackend> {
    pub model: Model<B>,
    loss: CrossEntropyLoss<B>,
    optimizer: OptimizerAdaptor<Adam, Model<B>, B>,
}

impl<B: AutodiffBackend> Learner<B> {
    /// A learner that has taken no step yet.
    pub fn new(model: Model<B>, device: &B::Device) -> Self {
        let optimizer = AdamConfig::new().with_epsilon(1e-8).init();
        Self { model, loss: CrossEntropyLossConfig::new().init(device), optimizer }
    }

    /// Takes a step on these images, and gives the loss before it: one number, still on the device.
    ///
    /// By value, so that nobody else holds the weights and they can be written in place.
    pub fn step(
        mut self,
        images: Tensor<B, 4>,
        labels: Tensor<B, 1, Int>,
        rate: f64,
    ) -> (Self, Tensor<B::InnerBackend, 1>) {
        let loss = self.loss.forward(self.model.forward(images), labels);
        let told = loss.clone().inner();
        let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
        self.model = self.optimizer.step(rate, self.model, gradients);
        (self, told)
    }

    /// The model as it is used.
    pub fn valid(&self) -> Model<B::InnerBackend> {
        self.model.valid()
    }
}
