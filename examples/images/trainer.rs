//! A training step, and what a checkpoint holds.

use burn::lr_scheduler::LrScheduler;
use burn::lr_scheduler::cosine::{CosineAnnealingLrScheduler, CosineAnnealingLrSchedulerConfig};
use burn::module::AutodiffModule;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{AdamW, AdamWConfig, GradientsParams, Optimizer};
use burn::tensor::{Int, Tensor};
use burn_wgsl::parallel::{ParallelError, Worker};
use burn_wgsl::scaler::{GradScaler, GradScalerConfig, ScaledOptimizer};
use burn_wgsl::train::{CheckpointError, Ema, MeanGradients, Parts, Segments};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice};

use crate::args::Args;
use crate::batches::Batch;
use crate::model::Network;

pub type B = Autodiff<Wgsl>;

/// The largest norm of the gradients of a step.
const MAX_NORM: f32 = 1.0;

/// A network in training.
#[derive(Clone)]
pub struct Trainer {
    model: Network<B>,
    optimizer: ScaledOptimizer<OptimizerAdaptor<AdamW, Network<B>, B>>,
    scaler: GradScaler,
    rate: CosineAnnealingLrScheduler,
    average: Option<Ema<Network<Wgsl>>>,
    recomputes: bool,
}

impl Trainer {
    /// Prepares a network, which is trained for `steps` steps.
    pub fn new(
        args: &Args,
        model: Network<B>,
        steps: usize,
        device: &WgslDevice,
    ) -> anyhow::Result<Self> {
        // Small gradients would be 0 in f16.
        let enabled = args.precision == Precision::F16;
        let scaler = GradScalerConfig { enabled, ..GradScalerConfig::default() }.init(device);
        let rate = CosineAnnealingLrSchedulerConfig::new(args.learning_rate, steps.max(1));
        Ok(Self {
            average: args.average.map(|decay| Ema::new(&model, decay)),
            model,
            optimizer: scaler.wrap(AdamWConfig::new().init()).with_max_norm(MAX_NORM),
            scaler,
            rate: rate.init().map_err(anyhow::Error::msg)?,
            recomputes: args.recompute,
        })
    }

    /// Lists what a checkpoint holds.
    ///
    /// # Errors
    ///
    /// Returns an error if a part cannot be saved, or does not fit.
    pub fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        parts.module::<B, _>("model", &mut self.model)?;
        parts.optimizer("optimizer", &mut self.optimizer)?;
        parts.scheduler("rate", &mut self.rate)?;
        match &mut self.average {
            Some(average) => parts.average("average", average),
            None => Ok(()),
        }
    }

    /// Adds the gradients of a batch to `sum`. If they are those of a step, `worker` exchanges them during the backward
    /// pass. Returns the mean loss `[1]`.
    ///
    /// # Errors
    ///
    /// Returns an error if a worker failed.
    pub fn add(
        &self,
        batch: Batch<B>,
        sum: &mut MeanGradients<Network<B>>,
        worker: Option<&Worker>,
    ) -> Result<Tensor<Wgsl, 1>, ParallelError> {
        let Batch { images, labels } = batch;
        let [samples] = labels.dims();
        let (loss, gradients) = match &self.model {
            Network::ResNet(resnet) if self.recomputes => {
                let device = images.device();
                let start = Segments::start(&device, &resnet.stem, move |stem| {
                    stem.forward(images.clone())
                });
                let blocks = resnet.blocks.iter();
                let segments = blocks.fold(start, |segments, block| {
                    segments.then(block, |block, x| block.forward(x))
                });
                let (y, segments) = segments.end();
                let loss = loss(resnet.head(y), labels);
                (loss.clone().inner(), segments.backward(self.scaler.scale(loss), &self.model))
            }
            model => {
                let watched = worker.map(|worker| worker.watch(model, samples)).transpose()?;
                let used = watched.as_ref().unwrap_or(model);
                let loss = loss(used.forward(images), labels);
                let gradients = self.scaler.scale(loss.clone()).backward();
                (loss.inner(), GradientsParams::from_grads(gradients, model))
            }
        };
        sum.add(&self.model, gradients, samples);
        Ok(loss)
    }

    /// Updates the weights with the mean of the gradients of all workers.
    ///
    /// # Errors
    ///
    /// Returns an error if a worker failed.
    pub fn step(
        &mut self,
        worker: &Worker,
        sum: &mut MeanGradients<Network<B>>,
    ) -> Result<(), ParallelError> {
        let samples = sum.samples();
        let gradients = worker.mean(sum.take(), &self.model, samples)?;
        self.update(gradients);
        Ok(())
    }

    /// Updates the weights.
    pub fn update(&mut self, gradients: GradientsParams) {
        let rate = self.rate.step();
        self.model = self.optimizer.step(rate, self.model.clone(), gradients);
        if let Some(average) = &mut self.average {
            average.update(&self.model);
        }
    }

    /// Gives all workers the parameters of the first, if those of any differ: optimizers of unlike devices round
    /// differently.
    ///
    /// # Errors
    ///
    /// Returns an error if a worker failed.
    pub fn keep_equal(&mut self, worker: &Worker) -> Result<(), ParallelError> {
        self.model = worker.keep_equal(self.model.clone())?;
        Ok(())
    }

    /// Returns the network for predictions: that of the averaged weights, if there are any.
    pub fn model(&self) -> Network<Wgsl> {
        match &self.average {
            Some(average) => average.model().clone(),
            None => self.model.valid(),
        }
    }
}

/// Returns the mean cross entropy.
fn loss(scores: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, labels)
}
