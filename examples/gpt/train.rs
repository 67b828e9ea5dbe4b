//! Training in a precision, with a loss scale where the precision needs one.

use burn::module::AutodiffModule;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_wgsl::scaler::{GradScaler, GradScalerConfig, ScaledOptimizer};
use burn_wgsl::train::{CheckpointError, Parts};
use burn_wgsl::{Autodiff, Precision, PrecisionScope, Wgsl, WgslDevice, autocast, scope};

use crate::corpus::Batch;
use crate::model::{Gpt, Sizes};

type B = Autodiff<Wgsl>;

/// A model in training, of which clones train on their own but for the loss scale. Its parameters are f32, and its
/// products are computed in a precision.
#[derive(Clone)]
pub struct Trainer {
    device: WgslDevice,
    precision: Precision,
    /// `None` only during a step.
    model: Option<Gpt<B>>,
    optimizer: ScaledOptimizer<OptimizerAdaptor<Adam, Gpt<B>, B>>,
    scaler: GradScaler,
}

impl Trainer {
    /// Seeds the device and creates an untrained model.
    ///
    /// # Panics
    ///
    /// Panics if the number of heads does not divide the width, or if the device fails.
    pub fn new(
        sizes: Sizes,
        vocabulary_size: usize,
        precision: Precision,
        seed: u64,
        device: WgslDevice,
    ) -> Self {
        B::seed(&device, seed);
        // Small gradients would be 0 in f16. bf16 has the range of f32.
        let enabled = precision == Precision::F16;
        let scaler = GradScalerConfig { enabled, ..GradScalerConfig::default() }.init(&device);
        Self {
            device,
            precision,
            model: Some(Gpt::new(sizes, vocabulary_size, &device)),
            optimizer: scaler.wrap(AdamConfig::new().with_epsilon(1e-8).init()),
            scaler,
        }
    }

    /// Computes products in the precision until the result is dropped. Steps in such a scope keep the
    /// 16-bit copies of the parameters for the next step.
    pub fn precision_scope(&self) -> PrecisionScope {
        autocast(&self.device, self.precision)
    }

    /// Trains on a batch. Returns the loss before the step, without reading it back.
    pub fn step(&mut self, batch: Batch<B>, learning_rate: f64) -> Tensor<Wgsl, 1> {
        let model = self.model.take().expect("it is absent only during a step");
        // The optimizer's step is in the scope too: it computes the 16-bit copies of the parameters.
        let _precision = self.precision_scope();
        let forward = scope("forward");
        let loss = model.loss(batch);
        let before = loss.clone().inner();
        drop(forward);
        let gradients = GradientsParams::from_grads(self.scaler.scale(loss).backward(), &model);
        let _optimizer = scope("optimizer");
        self.model = Some(self.optimizer.step(learning_rate, model, gradients));
        before
    }

    /// Lists what a checkpoint holds.
    ///
    /// # Errors
    ///
    /// Returns an error if a part cannot be saved, or does not fit.
    pub fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        parts.module("model", &mut self.model)?;
        parts.optimizer("optimizer", &mut self.optimizer)
    }

    /// Returns the model without gradients.
    pub fn model(&self) -> Gpt<Wgsl> {
        self.model.as_ref().expect("it is absent only during a step").valid()
    }

    /// Returns the scaler of the loss, which is enabled only for f16.
    pub fn scaler(&self) -> &GradScaler {
        &self.scaler
    }
}
