//! A run that is saved and resumed with all of its parts.

use std::fmt::Debug;
use std::path::PathBuf;

use burn::lr_scheduler::LrScheduler;
use burn::module::{AutodiffModule, Module};
use burn::optim::Optimizer;
#[cfg(feature = "learner")]
use burn::record::Record;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    Checkpoint, CheckpointError, Checkpoints, Ema, Loader, LoaderError, Position, State, Stop,
};
use crate::backend::{RandomState, random_state, set_random_state};
use crate::device::WgslDevice;

/// The part with the random numbers of the devices.
const RANDOM: &str = "random";

/// What a run saves and resumes: one list of its parts for both.
///
/// ```
/// # use burn::module::Module;
/// # use burn::nn::Linear;
/// # use burn::optim::{Adam, adaptor::OptimizerAdaptor};
/// use burn_wgsl::train::{CheckpointError, Parts, Saved};
/// # type B = burn_wgsl::Autodiff<burn_wgsl::Wgsl>;
///
/// struct Trainer {
///     model: Linear<B>,
///     optimizer: OptimizerAdaptor<Adam, Linear<B>, B>,
///     /// The losses of the epochs.
///     losses: Vec<f32>,
/// }
///
/// impl Saved for Trainer {
///     fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
///         parts.module("model", &mut self.model)?;
///         parts.optimizer("optimizer", &mut self.optimizer)?;
///         parts.value("losses", &mut self.losses)
///     }
/// }
/// ```
///
/// A closure `|parts: &mut Parts<'_>| { ... }` is one, too.
pub trait Saved {
    /// Lists the parts: each is written to `parts`, or overwritten with what was saved.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Parts`].
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError>;
}

impl<F: FnMut(&mut Parts<'_>) -> Result<(), CheckpointError>> Saved for F {
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        self(parts)
    }
}

impl Checkpoint {
    /// Gives the parts of the checkpoint to what lists them, as [`Run::resume`] does, but for the random numbers of
    /// devices.
    pub(crate) fn restore(
        &self,
        saved: &mut impl Saved,
        device: &WgslDevice,
    ) -> Result<(), CheckpointError> {
        saved.parts(&mut Parts { direction: Direction::Resume(&self.state), device: *device })
    }
}

/// Saves or resumes the parts that a [`Saved`] lists. All methods return an error if a name is not one of a file, and,
/// when a run is resumed, if there is no such part or if it does not fit.
#[derive(Debug)]
pub struct Parts<'a> {
    direction: Direction<'a>,
    device: WgslDevice,
}

#[derive(Debug)]
enum Direction<'a> {
    Save(&'a mut State),
    Resume(&'a State),
}

impl Parts<'_> {
    /// Returns whether the parts are saved; if not, they are resumed.
    #[cfg(feature = "learner")]
    pub(super) fn are_saved(&self) -> bool {
        matches!(self.direction, Direction::Save(_))
    }

    /// Saves the record that `get` returns, or gives the one that was saved to `set`.
    #[cfg(feature = "learner")]
    pub(super) fn record<B, R>(
        &mut self,
        name: &str,
        get: impl FnOnce() -> Result<R, CheckpointError>,
        set: impl FnOnce(R),
    ) -> Result<(), CheckpointError>
    where
        B: Backend<Device = WgslDevice>,
        R: Record<B>,
    {
        match &mut self.direction {
            Direction::Save(state) => state.set_record::<B>(name, get()?)?,
            Direction::Resume(state) => set(state.record::<B, R>(name, &self.device)?),
        }
        Ok(())
    }

    /// Saves or resumes a module: its parameters and running statistics.
    ///
    /// # Errors
    ///
    /// See [`Parts`].
    pub fn module<B, M>(&mut self, name: &str, module: &mut M) -> Result<(), CheckpointError>
    where
        B: Backend<Device = WgslDevice>,
        M: Module<B>,
    {
        match &mut self.direction {
            Direction::Save(state) => state.set_module(name, module)?,
            Direction::Resume(state) => {
                *module = state.module(name, module.clone(), &self.device)?;
            }
        }
        Ok(())
    }

    /// Saves or resumes a tensor without gradients, such as a sum of losses.
    ///
    /// # Errors
    ///
    /// See [`Parts`].
    pub fn tensor<B, const D: usize>(
        &mut self,
        name: &str,
        tensor: &mut Tensor<B, D>,
    ) -> Result<(), CheckpointError>
    where
        B: Backend<Device = WgslDevice>,
    {
        match &mut self.direction {
            Direction::Save(state) => state.set_record(name, tensor.clone())?,
            Direction::Resume(state) => {
                let loaded: Tensor<B, D> = state.record(name, &self.device)?;
                if loaded.dims() != tensor.dims() {
                    let (found, expected) = (loaded.dims(), tensor.dims());
                    let reason = format!("it has the shape {found:?}, not {expected:?}");
                    return Err(CheckpointError::unusable(name, &reason));
                }
                *tensor = loaded;
            }
        }
        Ok(())
    }

    /// Saves or resumes an optimizer: its moments; with [`GradScaler::wrap`](crate::scaler::GradScaler::wrap), also the
    /// loss scale.
    ///
    /// # Errors
    ///
    /// See [`Parts`].
    pub fn optimizer<B, M, O>(
        &mut self,
        name: &str,
        optimizer: &mut O,
    ) -> Result<(), CheckpointError>
    where
        B: AutodiffBackend<Device = WgslDevice>,
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        match &mut self.direction {
            Direction::Save(state) => state.set_record(name, optimizer.to_record())?,
            Direction::Resume(state) => {
                let record = state.record(name, &self.device)?;
                *optimizer = optimizer.clone().load_record(record);
            }
        }
        Ok(())
    }

    /// Saves or resumes a scheduler of the learning rate.
    ///
    /// # Errors
    ///
    /// See [`Parts`].
    pub fn scheduler<S: LrScheduler>(
        &mut self,
        name: &str,
        scheduler: &mut S,
    ) -> Result<(), CheckpointError> {
        type Records = crate::backend::Wgsl;
        match &mut self.direction {
            Direction::Save(state) => state.set_record(name, scheduler.to_record::<Records>())?,
            Direction::Resume(state) => {
                let record = state.record(name, &self.device)?;
                *scheduler = scheduler.clone().load_record::<Records>(record);
            }
        }
        Ok(())
    }

    /// Saves or resumes an average of weights: the weights as the part `name`, the steps as `name-steps`.
    ///
    /// # Errors
    ///
    /// See [`Parts`].
    pub fn average<B, I>(&mut self, name: &str, average: &mut Ema<I>) -> Result<(), CheckpointError>
    where
        B: Backend<Device = WgslDevice>,
        I: Module<B>,
    {
        let (mut weights, mut steps) = (average.model().clone(), average.steps());
        self.module(name, &mut weights)?;
        self.value(&format!("{name}-steps"), &mut steps)?;
        if let Direction::Resume(_) = self.direction {
            average.resume(weights, steps);
        }
        Ok(())
    }

    /// Saves or resumes the position of a loader.
    ///
    /// # Errors
    ///
    /// See [`Parts`]; also, when a run is resumed, if the loader has other data, another batch size or another seed.
    pub fn loader<B, I, O>(
        &mut self,
        name: &str,
        loader: &Loader<B, I, O>,
    ) -> Result<(), CheckpointError>
    where
        B: Backend,
        I: 'static,
        O: Send + 'static,
    {
        self.loader_of(name, loader, |position| position, Ok)
    }

    /// The same, for a loader that has a part of each batch, of which the position of all is saved:
    /// `parts.loader_of(name, &loader, |own| part.to_all(own), |all| part.of_all(all))`, with a
    /// [`Part`](crate::parallel::Part).
    ///
    /// # Errors
    ///
    /// As [`loader`](Self::loader).
    pub fn loader_of<B, I, O>(
        &mut self,
        name: &str,
        loader: &Loader<B, I, O>,
        saved: impl FnOnce(Position) -> Position,
        resumed: impl FnOnce(Position) -> Result<Position, LoaderError>,
    ) -> Result<(), CheckpointError>
    where
        B: Backend,
        I: 'static,
        O: Send + 'static,
    {
        let mut position = saved(loader.position());
        self.value(name, &mut position)?;
        match self.direction {
            Direction::Save(_) => Ok(()),
            Direction::Resume(_) => {
                let continued = resumed(position).and_then(|position| loader.resume(position));
                continued.map_err(|error| CheckpointError::unusable(name, &error))
            }
        }
    }

    /// Saves a setting, which the resumed run must have in common with the saved one, such as the batch size or the
    /// seed.
    ///
    /// # Errors
    ///
    /// See [`Parts`]; also, when a run is resumed, if the saved value is another.
    pub fn setting<T>(&mut self, name: &str, setting: &T) -> Result<(), CheckpointError>
    where
        T: Serialize + DeserializeOwned + PartialEq + Debug,
    {
        match &mut self.direction {
            Direction::Save(state) => state.set_value(name, setting),
            Direction::Resume(state) => match state.value::<T>(name)? {
                saved if saved == *setting => Ok(()),
                saved => Err(CheckpointError::OtherSetting {
                    name: name.to_owned(),
                    saved: format!("{saved:?}"),
                    found: format!("{setting:?}"),
                }),
            },
        }
    }

    /// Saves or resumes any value with serde's traits.
    ///
    /// # Errors
    ///
    /// See [`Parts`].
    pub fn value<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        value: &mut T,
    ) -> Result<(), CheckpointError> {
        match &mut self.direction {
            Direction::Save(state) => state.set_value(name, value)?,
            Direction::Resume(state) => *value = state.value(name)?,
        }
        Ok(())
    }
}

impl Parts<'_> {
    /// Saves or resumes a value that a checkpoint may lack.
    pub(crate) fn optional_value<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        value: &mut T,
    ) -> Result<(), CheckpointError> {
        match &self.direction {
            Direction::Resume(state) if !state.parts.contains_key(name) => Ok(()),
            _ => self.value(name, value),
        }
    }
}

/// How a [`Run`] saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunConfig {
    /// The newest checkpoints that stay, beside that with the best score [default: 2].
    pub keep: usize,
    /// Steps between two checkpoints of [`Run::end_step`]; `None`: only when it is to stop [default: `None`].
    pub every: Option<u64>,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self { keep: 2, every: None }
    }
}

/// A run whose checkpoints hold all that it needs to go on with the same bits: the parts that its [`Saved`] lists, the
/// random numbers of its devices, and its steps.
///
/// Save between two steps: gradients that are accumulated and metrics that were not read are not saved. A part is lent
/// for the call only, so a [`Loader`] that is one is in an `Arc`, of which the loop has a clone.
///
/// ```no_run
/// use burn_wgsl::WgslDevice;
/// use burn_wgsl::train::{Run, RunConfig, Stop};
/// # use burn_wgsl::train::{CheckpointError, Parts, Saved};
/// # struct Trainer;
/// # impl Trainer { fn new(device: &WgslDevice) -> Self { Self } fn step(&mut self) {} }
/// # impl Saved for Trainer {
/// #     fn parts(&mut self, _: &mut Parts<'_>) -> Result<(), CheckpointError> { Ok(()) }
/// # }
///
/// let device = WgslDevice::default();
/// let mut trainer = Trainer::new(&device);
/// let config = RunConfig { every: Some(500), ..RunConfig::default() };
/// let stop = Stop::on_signals()?;
/// let mut run = Run::open("run", &[device], config)?.with_stop(stop.clone());
/// if run.resume(&mut trainer)?.is_some() {
///     println!("resumed after {} steps", run.step());
/// }
/// while run.step() < 10_000 {
///     trainer.step();
///     if !run.end_step(&mut trainer)? {
///         break;
///     }
/// }
/// run.save(&mut trainer, None)?;
/// run.finish()?;
/// std::process::exit(stop.exit_code().into());
/// # #[allow(unreachable_code)]
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Run {
    checkpoints: Checkpoints,
    devices: Vec<WgslDevice>,
    config: RunConfig,
    stop: Stop,
    step: u64,
    /// The step and the score of the last checkpoint.
    last: Option<(u64, Option<f64>)>,
}

impl Run {
    /// Opens the folder of a run, which is created if it is not there, and which no other process may save to. Parts
    /// are loaded to the first of the devices.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created or read, if another process has it open, or without a device.
    pub fn open(
        folder: impl Into<PathBuf>,
        devices: &[WgslDevice],
        config: RunConfig,
    ) -> Result<Self, CheckpointError> {
        if devices.is_empty() {
            return Err(CheckpointError::NoDevice);
        }
        Ok(Self {
            checkpoints: Checkpoints::open(folder, config.keep)?,
            devices: devices.to_vec(),
            config,
            stop: Stop::new(),
            step: 0,
            last: None,
        })
    }

    /// Returns a run that ends when a signal asks for it.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// Returns what ends the run after a step.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Continues at the newest checkpoint that is whole, which is returned; `None` if there are no checkpoints. Newer
    /// ones that are damaged are named in it, and as warnings in the log.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be read, if all checkpoints are damaged, or if one does not fit to the
    /// parts or devices of the run. Some parts may then be those of the checkpoint.
    pub fn resume(
        &mut self,
        saved: &mut impl Saved,
    ) -> Result<Option<Checkpoint>, CheckpointError> {
        let Some(found) = self.checkpoints.latest()? else { return Ok(None) };
        found.restore(saved, &self.devices[0])?;
        let random: Vec<RandomState> = found.state.value(RANDOM)?;
        if random.len() != self.devices.len() {
            let (found, expected) = (random.len(), self.devices.len());
            let reason = format!("it has a state for {found}, and the run has {expected} devices");
            return Err(CheckpointError::unusable(RANDOM, &reason));
        }
        for (device, state) in self.devices.iter().zip(random) {
            set_random_state(device, state)
                .map_err(|error| CheckpointError::unusable(RANDOM, &error))?;
        }
        self.step = found.step;
        self.last = Some((found.step, found.score));
        Ok(Some(found))
    }

    /// Begins as a command line with an option to resume asks for it: continues as [`resume`](Self::resume) does, or
    /// starts in a folder without checkpoints.
    ///
    /// # Errors
    ///
    /// Returns an error if there is nothing to resume, or if a new run would mix its checkpoints with those of
    /// another; also those of [`resume`](Self::resume).
    pub fn begin(
        &mut self,
        resumes: bool,
        saved: &mut impl Saved,
    ) -> Result<Option<Checkpoint>, CheckpointError> {
        let folder = self.checkpoints.folder().to_owned();
        match (resumes, self.is_new()?) {
            (true, true) => Err(CheckpointError::NothingToResume { folder }),
            (false, false) => Err(CheckpointError::NotEmpty { folder }),
            (true, false) => self.resume(saved),
            (false, true) => Ok(None),
        }
    }

    /// Returns whether the folder has no checkpoints.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be read, or the error of [`finish`](Self::finish).
    pub fn is_new(&mut self) -> Result<bool, CheckpointError> {
        self.finish()?;
        self.checkpoints.is_empty()
    }

    /// Returns the steps so far, including those before the run was resumed.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Counts a step without saving.
    pub(crate) fn count_step(&mut self) {
        self.step += 1;
    }

    /// Counts a step. Saves after every [`every`](RunConfig::every) steps, and if a signal asked for the end: then the
    /// checkpoint is on the disk when this returns. Returns whether the run is to go on.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`save`](Self::save).
    pub fn end_step(&mut self, saved: &mut impl Saved) -> Result<bool, CheckpointError> {
        self.count_step();
        let stops = self.stop.is_requested();
        if stops || self.config.every.is_some_and(|every| self.step.is_multiple_of(every.max(1))) {
            self.save(saved, None)?;
        }
        if stops {
            self.finish()?;
        }
        Ok(!stops)
    }

    /// Saves all parts: reads them back, and lets a thread write them. Does nothing if the last checkpoint is of the
    /// same step, and has the same score or a score of its own. Of scores, the largest is the best.
    ///
    /// # Errors
    ///
    /// Returns an error if a part cannot be saved, or if the checkpoint before could not be written, such as to a full
    /// disk; this one is written all the same.
    pub fn save(
        &mut self,
        saved: &mut impl Saved,
        score: Option<f64>,
    ) -> Result<(), CheckpointError> {
        if self
            .last
            .is_some_and(|(step, last)| step == self.step && (score.is_none() || last == score))
        {
            return Ok(());
        }
        let mut state = State::new();
        let direction = Direction::Save(&mut state);
        saved.parts(&mut Parts { direction, device: self.devices[0] })?;
        let random: Result<Vec<RandomState>, _> = self.devices.iter().map(random_state).collect();
        let random = random.map_err(|error| CheckpointError::unusable(RANDOM, &error))?;
        state.set_value(RANDOM, &random)?;
        self.last = Some((self.step, score));
        // An error is that of the checkpoint before.
        self.checkpoints.save(self.step, state, score)
    }

    /// Waits until the last checkpoint is written.
    ///
    /// # Errors
    ///
    /// Returns an error if it could not be written.
    pub fn finish(&mut self) -> Result<(), CheckpointError> {
        // What could not be written is not saved: the next call of `save` tries again.
        self.checkpoints.finish().inspect_err(|_| self.last = None)
    }

    /// Reads the checkpoint with the best score; `None` if none has a score.
    ///
    /// # Errors
    ///
    /// Returns an error if the last checkpoint could not be written, or if the best cannot be read.
    pub fn best(&mut self) -> Result<Option<Checkpoint>, CheckpointError> {
        self.finish()?;
        self.checkpoints.best()
    }
}
