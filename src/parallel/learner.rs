//! burn-train's learner on several devices.

use std::sync::Arc;

use burn::data::dataloader::Progress;
use burn::module::{AutodiffModule, Module};
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::backend::AutodiffBackend;
use burn::train::{
    EventProcessorTraining, InferenceStep, Interrupter, Learner, LearnerEvent,
    LearningComponentsTypes, SupervisedLearningStrategy, SupervisedTrainingEventProcessor,
    TrainLoader, TrainingComponents, TrainingItem, TrainingModel, ValidLoader,
};
use parking_lot::Mutex;

use super::workers::{Workers, run};
use super::{ParallelError, Worker};
use crate::backend::Wgsl;
use crate::device::WgslDevice;
use crate::train::Stop;

/// A strategy for burn-train's `SupervisedTraining` that trains on several devices, in place of its `MultiDevice`.
///
/// ```ignore
/// let strategy = ParallelStrategy::new("gpu:0,gpu:1".parse::<Workers>()?);
/// let training = SupervisedTraining::new("run/logs", train, valid)
///     .with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy.clone())));
/// let trained = training.launch(Learner::new(model, optimizer, 1e-3));
/// strategy.result()?;
/// ```
///
/// Each worker trains with batches of its part of the data, so that a step has as many batches as there are workers,
/// and takes it with the mean of their gradients, weighted by samples. Metrics are those of the samples of all, in
/// training and validation. After each epoch, the workers get the first one's parameters if any differ. The trained
/// model is on the device of the one that was given.
///
/// An optimizer with a [`GradScaler`](crate::scaler::GradScaler) has state on one device, and cannot be used.
#[derive(Debug, Clone)]
pub struct ParallelStrategy {
    workers: Workers,
    stop: Stop,
    seed: Option<u64>,
    /// burn-train's method returns no error.
    result: Arc<Mutex<Result<(), ParallelError>>>,
}

impl ParallelStrategy {
    /// Creates a strategy. `workers` are as for [`run`].
    pub fn new(workers: Workers) -> Self {
        Self { workers, stop: Stop::new(), seed: None, result: Arc::new(Mutex::new(Ok(()))) }
    }

    /// Sets what ends the training after a step, besides burn-train's interrupter.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// Seeds the random numbers of each worker, for dropout, so that a training repeats its bits.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Returns the result of the training.
    ///
    /// # Errors
    ///
    /// Returns an error if the workers did not start, or one failed. The trained model is then the one that was given.
    pub fn result(&self) -> Result<(), ParallelError> {
        self.result.lock().clone()
    }
}

impl<LC> SupervisedLearningStrategy<LC> for ParallelStrategy
where
    LC: LearningComponentsTypes,
    LC::Backend: AutodiffBackend<InnerBackend = Wgsl, Device = WgslDevice>,
{
    fn fit(
        &self,
        components: TrainingComponents<LC>,
        learner: Learner<LC>,
        train: TrainLoader<LC>,
        valid: ValidLoader<LC>,
        first: usize,
    ) -> (TrainingModel<LC>, SupervisedTrainingEventProcessor<LC>) {
        *self.result.lock() = Ok(());
        let given = learner.model();
        let training = Training::<LC> {
            learner: Mutex::new(learner),
            train,
            valid,
            epochs: (first, components.num_epochs),
            accumulation: components.grad_accumulation.unwrap_or(1),
            interrupter: components.interrupter.clone(),
            stop: self.stop.clone(),
            seed: self.seed,
            metrics: Mutex::new(Metrics { components, items: 0 }),
        };
        let trained = run(self.workers.clone(), |worker| training.work(worker));
        let events = training.metrics.into_inner().components.event_processor;
        match trained.map(|models| models.into_iter().next()) {
            Ok(trained) => {
                let device = given.devices().into_iter().next();
                let trained = trained.unwrap_or(given);
                (device.map_or(trained.clone(), |device| trained.fork(&device)), events)
            }
            Err(error) => {
                *self.result.lock() = Err(error);
                (given, events)
            }
        }
    }
}

/// What the workers share.
struct Training<LC: LearningComponentsTypes> {
    learner: Mutex<Learner<LC>>,
    train: TrainLoader<LC>,
    valid: ValidLoader<LC>,
    /// The first and the last.
    epochs: (usize, usize),
    /// Batches of a worker before a step.
    accumulation: usize,
    interrupter: Interrupter,
    stop: Stop,
    seed: Option<u64>,
    metrics: Mutex<Metrics<LC>>,
}

/// Where metrics are collected, and what the first worker does after an epoch.
struct Metrics<LC: LearningComponentsTypes> {
    components: TrainingComponents<LC>,
    /// Those of all workers in this part of the epoch, so far.
    items: usize,
}

impl<LC> Training<LC>
where
    LC: LearningComponentsTypes,
    LC::Backend: AutodiffBackend<InnerBackend = Wgsl, Device = WgslDevice>,
{
    /// The program of a worker. Returns the trained model.
    fn work(&self, worker: &Worker) -> Result<TrainingModel<LC>, ParallelError> {
        let mut learner = self.learner.lock().clone();
        learner.fork(&worker.device());
        // Fewer items than workers are an error.
        worker.batch_size(self.train.num_items())?;
        let model = worker.broadcast::<LC::Backend, _>(learner.model())?;
        learner.load_model(model.into_record());
        if let Some(seed) = self.seed {
            worker.seed::<LC::Backend>(seed);
        }
        for epoch in self.epochs.0..=self.epochs.1 {
            let is_trained = self.train(worker, &mut learner, epoch)?;
            // Running statistics differ, and what unlike devices round.
            let model = worker.keep_equal::<LC::Backend, _>(learner.model())?;
            learner.load_model(model.into_record());
            let goes_on = is_trained && self.validate(worker, &learner, epoch)?;
            if !goes_on || self.end_epoch(worker, &learner, epoch)? {
                break;
            }
        }
        Ok(learner.model())
    }

    /// Trains for an epoch. Returns whether the training is to go on.
    fn train(
        &self,
        worker: &Worker,
        learner: &mut Learner<LC>,
        epoch: usize,
    ) -> Result<bool, ParallelError> {
        let items = self.train.num_items();
        let own = worker.range(items);
        let loader = self.train.slice(own.start, own.end).to_device(&worker.device());
        let mut batches = loader.iter();
        let (mut sum, mut summed, mut samples) = (GradientsAccumulator::new(), 0, 0);
        let (mut iteration, mut before) = (0, 0);
        loop {
            let batch = batches.next();
            // A worker without batches takes the steps of the others.
            let (has_batch, stops) = self.progress(worker, batch.is_some())?;
            if stops || !has_batch {
                self.end_of_items(worker, |events| {
                    events.process_train(LearnerEvent::EndEpoch(epoch));
                })?;
                return Ok(!stops);
            }
            learner.lr_step();
            iteration += 1;
            let mut item = None;
            if let Some(batch) = batch {
                let processed = batches.progress().items_processed;
                let (output, own) = (learner.train_step(batch), processed - before);
                sum.accumulate(&learner.model(), output.grads);
                samples += own;
                before = processed;
                item = Some((output.item, own));
            }
            summed += 1;
            if summed >= self.accumulation {
                let own = if samples > 0 { sum.grads() } else { GradientsParams::new() };
                let mean = worker.mean::<LC::Backend, _>(own, &learner.model(), samples)?;
                learner.optimizer_step(mean);
                (summed, samples) = (0, 0);
            }
            if let Some((item, own)) = item {
                let rate = learner.lr_current();
                let mut metrics = self.metrics.lock();
                let (progress, global) = self.places(&mut metrics, own, items, epoch);
                let item = TrainingItem::new(item, progress, global, Some(iteration), Some(rate));
                let events = &mut metrics.components.event_processor;
                events.process_train(LearnerEvent::ProcessedItem(item));
            }
        }
    }

    /// Adds items of a worker. Returns how many there are of all, and the epoch.
    fn places(
        &self,
        metrics: &mut Metrics<LC>,
        own: usize,
        items: usize,
        epoch: usize,
    ) -> (Progress, Progress) {
        metrics.items += own;
        (Progress::new(metrics.items.min(items), items), Progress::new(epoch, self.epochs.1))
    }

    /// Validates a worker's part of the items. Returns whether the training is to go on.
    fn validate(
        &self,
        worker: &Worker,
        learner: &Learner<LC>,
        epoch: usize,
    ) -> Result<bool, ParallelError> {
        let items = self.valid.num_items();
        let own = worker.range(items);
        let model = learner.model().valid();
        if !own.is_empty() {
            let loader = self.valid.slice(own.start, own.end).to_device(&worker.device());
            let mut batches = loader.iter();
            let (mut iteration, mut before) = (0, 0);
            while let Some(batch) = batches.next() {
                iteration += 1;
                let item = model.step(batch);
                let processed = batches.progress().items_processed;
                let mut metrics = self.metrics.lock();
                let (progress, global) =
                    self.places(&mut metrics, processed - before, items, epoch);
                before = processed;
                let item = TrainingItem::new(item, progress, global, Some(iteration), None);
                let events = &mut metrics.components.event_processor;
                events.process_valid(LearnerEvent::ProcessedItem(item));
                if self.is_stopped() {
                    break;
                }
            }
        }
        let (_, stops) = self.progress(worker, false)?;
        self.end_of_items(worker, |events| events.process_valid(LearnerEvent::EndEpoch(epoch)))?;
        Ok(!stops)
    }

    fn is_stopped(&self) -> bool {
        if self.stop.is_requested() {
            self.interrupter.stop(Some("a signal asked for it"));
        }
        self.interrupter.should_stop()
    }

    /// Returns whether any worker has a batch, and whether the training is interrupted.
    fn progress(&self, worker: &Worker, has_batch: bool) -> Result<(bool, bool), ParallelError> {
        let flags = [has_batch, self.is_stopped()];
        let sums = worker.sum(&flags.map(|flag| f64::from(u8::from(flag))))?;
        Ok((sums[0] > 0.0, sums[1] > 0.0))
    }

    /// Ends an epoch in the metrics, after the items of all workers and before any other.
    fn end_of_items(
        &self,
        worker: &Worker,
        end: impl FnOnce(&mut SupervisedTrainingEventProcessor<LC>),
    ) -> Result<(), ParallelError> {
        worker.sum(&[])?;
        if worker.is_first() {
            let mut metrics = self.metrics.lock();
            metrics.items = 0;
            end(&mut metrics.components.event_processor);
        }
        worker.sum(&[]).map(drop)
    }

    /// Saves what burn-train's checkpointers save. Returns whether the training stops early.
    fn end_epoch(
        &self,
        worker: &Worker,
        learner: &Learner<LC>,
        epoch: usize,
    ) -> Result<bool, ParallelError> {
        let mut stops = false;
        if worker.is_first() {
            let components = &mut self.metrics.lock().components;
            let store = &components.event_store;
            if let Some(checkpointer) = &mut components.checkpointer {
                checkpointer.checkpoint(learner, epoch, store);
            }
            if let Some(strategy) = &mut components.early_stopping {
                stops = strategy.should_stop(epoch, store);
            }
        }
        Ok(worker.sum(&[f64::from(u8::from(stops))])?[0] > 0.0)
    }
}
