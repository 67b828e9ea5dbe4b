//! burn-train's learner on several devices.

use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::{
    EventProcessorTraining, InferenceStep, Interrupter, Learner, LearnerEvent,
    LearningComponentsTypes, SupervisedLearningStrategy, SupervisedTrainingEventProcessor,
    TrainLoader, TrainOutput, TrainStep, TrainingComponents, TrainingItem, TrainingModel,
    ValidLoader,
};
use parking_lot::Mutex;

use super::part::range;
use super::workers::{Workers, run};
use super::{ParallelError, Worker};
use crate::backend::Wgsl;
use crate::device::WgslDevice;
use crate::train::{MeanGradients, Stop};

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
/// Each worker has a part of the items, and the loaders' batch size is that of a worker: a step has the samples of as
/// many batches as there are workers, and their mean gradient. Metrics are those of the samples of all, in training and
/// validation. After each epoch, all workers get the parameters of the first if any differ. The trained model is on the
/// device of the one that was given.
///
/// As in burn-train, gradients that are accumulated are added up, and those that are left at the end of an epoch are
/// dropped. An epoch that is interrupted is not saved. burn-train's checkpointers and early stopping run on the first
/// worker, in less than the deadline.
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

    /// Seeds the random numbers of each worker, such as those of dropout. The loader has a seed of its own.
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
        let workers = self.workers.len();
        let training = Training::<LC> {
            learner: Mutex::new(learner),
            items: [train.num_items(), valid.num_items()],
            train: parts(&train, workers),
            valid: parts(&valid, workers),
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
                let moved = device.map(|device| trained.clone().fork(&device));
                (moved.unwrap_or(trained), events)
            }
            Err(error) => {
                *self.result.lock() = Err(error);
                (given, events)
            }
        }
    }
}

/// Returns the part of each worker of the items of a loader. Made once, and in the order of the workers: loaders draw
/// the order of their items from numbers that the parts share.
fn parts<B: Backend, O>(loader: &Arc<dyn DataLoader<B, O>>, workers: usize) -> Parts<B, O> {
    let shares = vec![1.0 / workers as f64; workers];
    let ranges = (0..workers).map(|rank| range(loader.num_items(), &shares, rank));
    ranges.map(|own| loader.slice(own.start, own.end)).collect()
}

type Parts<B, O> = Vec<Arc<dyn DataLoader<B, O>>>;
/// The samples of a model in training.
type Input<LC> = <TrainingModel<LC> as TrainStep>::Input;
/// Those of a model in validation.
type ValidInput<LC> = <<LC as LearningComponentsTypes>::InferenceModel as InferenceStep>::Input;

/// What a step of a model returned, and of how many samples.
type Seen<T> = (T, usize);

/// State that the workers share.
struct Training<LC: LearningComponentsTypes> {
    learner: Mutex<Learner<LC>>,
    /// Those of all workers, in training and in validation.
    items: [usize; 2],
    train: Parts<LC::Backend, Input<LC>>,
    valid: Parts<Wgsl, ValidInput<LC>>,
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
    /// Items of all workers in this part of the epoch, so far.
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
        worker.batch_size(self.items[0])?;
        let model = worker.broadcast::<LC::Backend, _>(learner.model())?;
        learner.load_model(model.into_record());
        if let Some(seed) = self.seed {
            worker.seed::<LC::Backend>(seed);
        }
        let (rank, device) = (worker.rank(), worker.device());
        let train = self.train[rank].to_device(&device);
        let valid = self.valid[rank].to_device(&device);
        for epoch in self.epochs.0..=self.epochs.1 {
            let is_trained = self.train(worker, &mut learner, &*train, epoch)?;
            // Running statistics differ, and unlike devices round differently.
            let model = worker.keep_equal::<LC::Backend, _>(learner.model())?;
            learner.load_model(model.into_record());
            let goes_on = is_trained && self.validate(worker, &learner, &*valid, epoch)?;
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
        loader: &dyn DataLoader<LC::Backend, Input<LC>>,
        epoch: usize,
    ) -> Result<bool, ParallelError> {
        let mut batches = loader.iter();
        let (mut sum, mut summed) = (MeanGradients::new(), 0);
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
            let mut seen = None;
            if let Some(batch) = batch {
                let samples = samples(&*batches, &mut before);
                let TrainOutput { grads, item } = learner.train_step(batch);
                sum.add::<LC::Backend>(&learner.model(), grads, samples);
                seen = Some((item, samples));
            }
            summed += 1;
            if summed >= self.accumulation {
                let (model, samples) = (learner.model(), sum.samples());
                // As many times the mean of their samples as burn-train adds up batches.
                let own = times::<LC::Backend, _>(sum.take(), &model, summed);
                let mean = worker.mean::<LC::Backend, _>(own, &model, samples)?;
                drop(model);
                learner.optimizer_step(mean);
                summed = 0;
            }
            if let Some(seen) = seen {
                let rate = Some(learner.lr_current());
                let mut metrics = self.metrics.lock();
                let event = self.event(&mut metrics, seen, self.items[0], epoch, iteration, rate);
                metrics.components.event_processor.process_train(event);
            }
        }
    }

    /// Validates a worker's part of the items. Returns whether the training is to go on.
    fn validate(
        &self,
        worker: &Worker,
        learner: &Learner<LC>,
        loader: &dyn DataLoader<Wgsl, ValidInput<LC>>,
        epoch: usize,
    ) -> Result<bool, ParallelError> {
        let model = learner.model().valid();
        let mut batches = loader.iter();
        let (mut iteration, mut before) = (0, 0);
        while let Some(batch) = batches.next() {
            iteration += 1;
            let seen = (model.step(batch), samples(&*batches, &mut before));
            let mut metrics = self.metrics.lock();
            let event = self.event(&mut metrics, seen, self.items[1], epoch, iteration, None);
            metrics.components.event_processor.process_valid(event);
            drop(metrics);
            if self.is_stopped() {
                break;
            }
        }
        let (_, stops) = self.progress(worker, false)?;
        self.end_of_items(worker, |events| events.process_valid(LearnerEvent::EndEpoch(epoch)))?;
        Ok(!stops)
    }

    /// Counts what a step of a worker returned, and returns it as burn-train's metrics take it.
    fn event<T>(
        &self,
        metrics: &mut Metrics<LC>,
        (item, samples): Seen<T>,
        of: usize,
        epoch: usize,
        iteration: usize,
        rate: Option<f64>,
    ) -> LearnerEvent<T> {
        metrics.items += samples;
        let progress = Progress::new(metrics.items.min(of), of);
        let global = Progress::new(epoch, self.epochs.1);
        LearnerEvent::ProcessedItem(TrainingItem::new(
            item,
            progress,
            global,
            Some(iteration),
            rate,
        ))
    }

    fn is_stopped(&self) -> bool {
        if self.stop.is_requested() {
            self.interrupter.stop(Some("stopped by a signal"));
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

/// Returns the samples of the batch that was returned last.
fn samples<O>(batches: &dyn DataLoaderIterator<O>, before: &mut usize) -> usize {
    let processed = batches.progress().items_processed;
    // The progress of an iterator of the program may stand still.
    let samples = processed.saturating_sub(*before).max(1);
    *before = processed;
    samples
}

/// Multiplies gradients.
fn times<B: AutodiffBackend, M: AutodiffModule<B>>(
    mut gradients: GradientsParams,
    module: &M,
    factor: usize,
) -> GradientsParams {
    if factor > 1 {
        let mut products = GradientsParams::new();
        module.visit(&mut Times { gradients: &mut gradients, products: &mut products, factor });
        return products;
    }
    gradients
}

struct Times<'a> {
    gradients: &'a mut GradientsParams,
    products: &'a mut GradientsParams,
    factor: usize,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Times<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        // A parameter that is visited twice has no gradient the second time.
        if let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            self.products.register(param.id, gradient * self.factor as f64);
        }
    }
}
