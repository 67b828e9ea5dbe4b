//! Runs of Burn's learner that end at a signal and go on within an epoch.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use burn::data::dataloader::{DataLoader, Progress};
use burn::module::{AutodiffModule, Module};
use burn::optim::GradientsAccumulator;
use burn::record::Record;
use burn::tensor::backend::Backend;
use burn::train::checkpoint::{
    AsyncCheckpointer, Checkpointer, CheckpointerError, CheckpointingAction, CheckpointingStrategy,
};
use burn::train::metric::store::EventStoreClient;
use burn::train::{
    EventProcessorTraining, InferenceStep, Learner, LearnerEvent, LearnerModelRecord,
    LearnerOptimizerRecord, LearnerSchedulerRecord, LearningCheckpointer, LearningComponentsTypes,
    SupervisedLearningStrategy, SupervisedTrainingEventProcessor, TrainLoader, TrainOutput,
    TrainStep, TrainingComponents, TrainingItem, TrainingModel, ValidLoader,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{CheckpointError, Loader, Parts, Run, Saved};
use crate::backend::{random_state, set_random_state};
use crate::device::WgslDevice;

/// What the model of a learner is trained with.
type Input<LC> = <<LC as LearningComponentsTypes>::TrainingModel as TrainStep>::Input;

/// A strategy for burn-train's `SupervisedTraining` whose runs are saved by a [`Run`]: every N steps and at the end
/// that its [`Stop`](super::Stop) asks for, also within an epoch. A resumed run has the same weights, bit for bit.
///
/// Give it to `with_training_strategy`, with the same loader for training, and ask for [`result`](Self::result) after
/// `launch`. Clones share the run. Do not combine it with burn-train's own checkpointers. One device trains.
///
/// ```ignore
/// let run = Run::open("run", &[device], config)?.with_stop(stop.clone());
/// let strategy = RunStrategy::new(run, loader.clone(), resumes);
/// let training = SupervisedTraining::new("run/logs", loader, test)
///     .with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy.clone())));
/// let trained = training.launch(Learner::new(model, optimizer, 1e-3));
/// strategy.result()?;
/// ```
///
/// burn-train's metrics begin again where a run is resumed, and its log of a resumed epoch has the rest of it only.
/// Gradients that are accumulated are not saved: a run ends at a step. burn-train drops those that are left at the end
/// of an epoch. A validation that is interrupted is repeated.
pub struct RunStrategy<LC: LearningComponentsTypes, I> {
    shared: Arc<Shared<LC, I>>,
}

struct Shared<LC: LearningComponentsTypes, I> {
    loader: Arc<Loader<LC::Backend, I, Input<LC>>>,
    run: Mutex<Run>,
    resumes: bool,
    /// What the program adds.
    others: Mutex<Box<dyn Saved + Send>>,
    /// burn-train's method returns no error.
    result: Mutex<Result<(), CheckpointError>>,
}

impl<LC: LearningComponentsTypes, I> Clone for RunStrategy<LC, I> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<LC: LearningComponentsTypes, I> fmt::Debug for RunStrategy<LC, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunStrategy").field("resumes", &self.shared.resumes).finish_non_exhaustive()
    }
}

impl<LC: LearningComponentsTypes, I> RunStrategy<LC, I> {
    /// Creates a strategy. The loader is that of the training, which must not be copied by `to_device`. `resumes` is as
    /// for [`Run::begin`].
    pub fn new(run: Run, loader: Arc<Loader<LC::Backend, I, Input<LC>>>, resumes: bool) -> Self {
        Self::with_parts(run, loader, resumes, |_: &mut Parts<'_>| Ok(()))
    }

    /// Creates a strategy that also saves and resumes parts of the program, such as settings.
    pub fn with_parts(
        run: Run,
        loader: Arc<Loader<LC::Backend, I, Input<LC>>>,
        resumes: bool,
        parts: impl Saved + Send + 'static,
    ) -> Self {
        let (run, others) = (Mutex::new(run), Mutex::new(Box::new(parts) as Box<_>));
        let result = Mutex::new(Ok(()));
        Self { shared: Arc::new(Shared { loader, run, resumes, others, result }) }
    }

    /// Returns the result of the training: whether it was resumed and saved.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Run`]. The training ended there.
    pub fn result(&self) -> Result<(), CheckpointError> {
        self.shared.result.lock().clone()
    }
}

impl<LC, I> SupervisedLearningStrategy<LC> for RunStrategy<LC, I>
where
    LC: LearningComponentsTypes,
    LC::Backend: Backend<Device = WgslDevice>,
    I: Clone + Send + Sync + 'static,
{
    /// # Panics
    ///
    /// Panics if the training has another loader than the strategy.
    fn fit(
        &self,
        mut components: TrainingComponents<LC>,
        learner: Learner<LC>,
        train: TrainLoader<LC>,
        valid: ValidLoader<LC>,
        _first: usize,
    ) -> (TrainingModel<LC>, SupervisedTrainingEventProcessor<LC>) {
        let Shared { loader, run, resumes, others, result } = &*self.shared;
        assert!(
            Arc::as_ptr(&train).cast::<()>() == Arc::as_ptr(loader).cast(),
            "the strategy has another loader than the training; give both the same Arc"
        );
        let device = loader.device();
        let mut others = others.lock();
        let mut training = Training {
            learner,
            others: &mut **others,
            loader: loader.clone(),
            place: Place { epoch: 1, iteration: 0, is_trained: false },
            taps: Taps::new(),
            store: components.event_store.clone(),
            device,
        };
        let mut run = run.lock();
        *result.lock() = training.fit(&mut run, *resumes, &mut components, &valid);
        (training.learner.model(), components.event_processor)
    }
}

/// Where a training is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Place {
    /// From 1, as in burn-train.
    epoch: usize,
    /// Batches of the epoch so far.
    iteration: usize,
    /// Whether only the validation of the epoch is left.
    is_trained: bool,
}

struct Training<'a, LC: LearningComponentsTypes, I> {
    learner: Learner<LC>,
    others: &'a mut (dyn Saved + Send),
    loader: Arc<Loader<LC::Backend, I, Input<LC>>>,
    place: Place,
    taps: Taps<LC>,
    store: Arc<EventStoreClient>,
    device: WgslDevice,
}

impl<LC, I> Saved for Training<'_, LC, I>
where
    LC: LearningComponentsTypes,
    LC::Backend: Backend<Device = WgslDevice>,
    I: Clone + Send + Sync + 'static,
{
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        // Settings first: parts of another model do not fit.
        self.others.parts(parts)?;
        let Self { learner, taps, .. } = self;
        if parts.are_saved() {
            taps.all.checkpoint(learner, self.place.epoch, &self.store);
            let model = || received("model", &taps.model);
            parts.record::<LC::Backend, _>("model", model, drop)?;
        } else {
            // Unlike the record alone, the module is checked.
            let mut model = learner.model();
            parts.module::<LC::Backend, _>("model", &mut model)?;
            learner.load_model(model.into_record());
        }
        let optimizer = || received("optimizer", &taps.optimizer);
        parts.record::<LC::Backend, _>("optimizer", optimizer, |record| {
            learner.load_optim(record)
        })?;
        let scheduler = || received("scheduler", &taps.scheduler);
        parts.record::<LC::Backend, _>("scheduler", scheduler, |record| {
            learner.load_scheduler(record);
        })?;
        parts.loader("position", &self.loader)?;
        parts.value("place", &mut self.place)
    }
}

impl<LC, I> Training<'_, LC, I>
where
    LC: LearningComponentsTypes,
    LC::Backend: Backend<Device = WgslDevice>,
    I: Clone + Send + Sync + 'static,
{
    fn fit(
        &mut self,
        run: &mut Run,
        resumes: bool,
        components: &mut TrainingComponents<LC>,
        valid: &ValidLoader<LC>,
    ) -> Result<(), CheckpointError> {
        self.learner.fork(&self.device);
        if run.begin(resumes, self)?.is_some() {
            // burn-train's store of metrics begins at epoch 1, whose files it would overwrite.
            let Place { epoch, is_trained, .. } = self.place;
            let events = &mut components.event_processor;
            events.process_train(LearnerEvent::EndEpoch(epoch - usize::from(!is_trained)));
            events.process_valid(LearnerEvent::EndEpoch(epoch - 1));
        }
        while self.place.epoch <= components.num_epochs {
            let goes_on = self.train(run, components)? && self.validate(run, components, valid)?;
            if !goes_on {
                return run.finish();
            }
            let epoch = self.place.epoch;
            let stops_early = components
                .early_stopping
                .as_mut()
                .is_some_and(|strategy| strategy.should_stop(epoch, &components.event_store));
            self.place = Place { epoch: epoch + 1, iteration: 0, is_trained: false };
            run.save(self, None)?;
            if stops_early {
                break;
            }
        }
        run.finish()
    }

    /// Trains for the rest of an epoch. Returns whether the run is to go on.
    fn train(
        &mut self,
        run: &mut Run,
        components: &mut TrainingComponents<LC>,
    ) -> Result<bool, CheckpointError> {
        if self.place.is_trained {
            return Ok(true);
        }
        let loader = self.loader.clone();
        let global = Progress::new(self.place.epoch, components.num_epochs);
        let wanted = components.grad_accumulation.unwrap_or(1);
        let (mut sum, mut summed) = (GradientsAccumulator::new(), 0);
        let mut batches = loader.iter();
        while let Some(batch) = batches.next() {
            let progress = batches.progress();
            self.learner.lr_step();
            let TrainOutput { grads, item } = self.learner.train_step(batch);
            sum.accumulate(&self.learner.model(), grads);
            summed += 1;
            let steps = summed >= wanted;
            if steps {
                self.learner.optimizer_step(sum.grads());
                summed = 0;
            }
            self.place.iteration += 1;
            self.place.is_trained = progress.items_processed >= progress.items_total;
            if self.place.is_trained {
                // Only the validation is left, also for a run that is resumed here.
                loader.start_epoch(loader.position().epoch + 1);
            }
            let (iteration, rate) = (Some(self.place.iteration), Some(self.learner.lr_current()));
            let item = TrainingItem::new(item, progress, global.clone(), iteration, rate);
            components.event_processor.process_train(LearnerEvent::ProcessedItem(item));
            // Gradients of a part of a step are not saved.
            if (steps || self.place.is_trained) && !self.end_step(run, components)? {
                return Ok(false);
            }
        }
        components.event_processor.process_train(LearnerEvent::EndEpoch(self.place.epoch));
        self.place.is_trained = true;
        Ok(true)
    }

    /// Validates the model. Returns whether the run is to go on.
    fn validate(
        &mut self,
        run: &mut Run,
        components: &mut TrainingComponents<LC>,
        valid: &ValidLoader<LC>,
    ) -> Result<bool, CheckpointError> {
        let global = Progress::new(self.place.epoch, components.num_epochs);
        let (model, before) = (self.learner.model().valid(), random_state(&self.device));
        let (mut batches, mut iteration) = (valid.iter(), 0);
        while let Some(batch) = batches.next() {
            iteration += 1;
            let (item, progress) = (model.step(batch), batches.progress());
            let item = TrainingItem::new(item, progress, global.clone(), Some(iteration), None);
            components.event_processor.process_valid(LearnerEvent::ProcessedItem(item));
            if is_stopped(run, components) {
                // A resumed run validates again, with the same random numbers.
                if let Ok(before) = before {
                    let _ = set_random_state(&self.device, before);
                }
                run.save(self, None)?;
                return Ok(false);
            }
        }
        components.event_processor.process_valid(LearnerEvent::EndEpoch(self.place.epoch));
        Ok(true)
    }

    fn end_step(
        &mut self,
        run: &mut Run,
        components: &TrainingComponents<LC>,
    ) -> Result<bool, CheckpointError> {
        // Also that of burn-train's dashboard.
        let stops = is_stopped(run, components);
        let goes_on = run.end_step(self)?;
        if stops && goes_on {
            run.save(self, None)?;
        }
        Ok(goes_on && !stops)
    }
}

/// Returns whether a signal or burn-train's dashboard asked for the end.
fn is_stopped<LC: LearningComponentsTypes>(run: &Run, components: &TrainingComponents<LC>) -> bool {
    if run.stop().is_requested() {
        components.interrupter.stop(Some("a signal asked for it"));
    }
    components.interrupter.should_stop()
}

/// The only public way to the records of a learner's optimizer and scheduler: checkpointers that hand them back.
struct Taps<LC: LearningComponentsTypes> {
    all: LearningCheckpointer<LC>,
    model: Receiver<LearnerModelRecord<LC>>,
    optimizer: Receiver<LearnerOptimizerRecord<LC>>,
    scheduler: Receiver<LearnerSchedulerRecord<LC>>,
}

impl<LC: LearningComponentsTypes> Taps<LC> {
    fn new() -> Self {
        let (to_model, model) = channel();
        let (to_optimizer, optimizer) = channel();
        let (to_scheduler, scheduler) = channel();
        let all = LearningCheckpointer::new(
            AsyncCheckpointer::new(Tap(to_model)),
            AsyncCheckpointer::new(Tap(to_optimizer)),
            AsyncCheckpointer::new(Tap(to_scheduler)),
            Box::new(Always),
        );
        Self { all, model, optimizer, scheduler }
    }
}

/// Waits for a record, which burn-train's thread sends.
fn received<R>(name: &str, records: &Receiver<R>) -> Result<R, CheckpointError> {
    records.recv().map_err(|_| CheckpointError::unusable(name, &"burn-train did not record it"))
}

/// A checkpointer that sends the record. burn-train panics at errors of a checkpointer.
struct Tap<R>(Sender<R>);

impl<B: Backend, R: Record<B>> Checkpointer<R, B> for Tap<R> {
    fn save(&self, _epoch: usize, record: R) -> Result<(), CheckpointerError> {
        // Without a receiver, nobody waits for it.
        let _ = self.0.send(record);
        Ok(())
    }

    fn delete(&self, _epoch: usize) -> Result<(), CheckpointerError> {
        Ok(())
    }

    fn restore(&self, _epoch: usize, _device: &B::Device) -> Result<R, CheckpointerError> {
        Err(CheckpointerError::Unknown("a run restores its parts itself".to_owned()))
    }
}

/// Saves whenever it is asked.
struct Always;

impl CheckpointingStrategy for Always {
    fn checkpointing(&mut self, _: usize, _: &EventStoreClient) -> Vec<CheckpointingAction> {
        vec![CheckpointingAction::Save]
    }
}
