//! A run of several workers that is saved and resumed.

use std::path::PathBuf;
use std::sync::Arc;

use super::peers::{Label, Peers};
use super::{ParallelError, Worker};
use crate::backend::{RandomState, Wgsl, random_state, set_random_state};
use crate::train::{Checkpoint, CheckpointError, Parts, Run, RunConfig, Saved, State, Stop};

/// The part with the random numbers of all workers.
const RANDOM: &str = "worker-random";

/// A [`Run`] of several workers, of which the first saves: a checkpoint is for all. When it is resumed, the first reads
/// it and sends it to the others, so that they need no access to its folder. Save what does not depend on the number of
/// workers, and another number of them can go on: [`Parts::loader_of`] does so for a [`Part`](super::Part).
///
/// All workers call its methods in the same order.
///
/// ```no_run
/// use burn_wgsl::parallel::{self, ParallelError, SharedRun, Workers};
/// use burn_wgsl::train::{RunConfig, Stop};
/// # use burn_wgsl::parallel::Worker;
/// # use burn_wgsl::train::{CheckpointError, Parts, Saved};
/// # struct Trainer;
/// # impl Trainer { fn new(worker: &Worker) -> Self { Self } fn step(&mut self) {} }
/// # impl Saved for Trainer {
/// #     fn parts(&mut self, _: &mut Parts<'_>) -> Result<(), CheckpointError> { Ok(()) }
/// # }
///
/// let stop = Stop::on_signals()?;
/// parallel::run("gpu:0,gpu:1".parse::<Workers>()?, |worker| {
///     let mut trainer = Trainer::new(worker);
///     let config = RunConfig { every: Some(500), ..RunConfig::default() };
///     let mut run = SharedRun::new(worker, stop.clone()).saved_to("run", config)?;
///     run.begin(true, &mut trainer)?;
///     while run.step() < 10_000 {
///         trainer.step();
///         if !run.end_step(&mut trainer)? {
///             break;
///         }
///     }
///     run.save(&mut trainer, None)?;
///     run.finish()
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SharedRun<'a> {
    worker: &'a Worker,
    stop: Stop,
    step: u64,
    /// How it is saved, if it is.
    config: Option<RunConfig>,
    /// The run of the first worker.
    run: Option<Run>,
}

impl<'a> SharedRun<'a> {
    /// Begins a run, which ends for all workers after the step in which `stop` is requested of one.
    pub fn new(worker: &'a Worker, stop: Stop) -> Self {
        Self { worker, stop, step: 0, config: None, run: None }
    }

    /// Saves the run to a folder of the first worker, which is created if it is not there. Without it, the other
    /// methods save nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created or read, or if another process has it open.
    pub fn saved_to(
        mut self,
        folder: impl Into<PathBuf>,
        config: RunConfig,
    ) -> Result<Self, ParallelError> {
        if self.worker.is_first() {
            let run = Run::open(folder, &[self.worker.device()], config);
            self.run = Some(checked(self.worker.peers(), run)?);
        }
        self.config = Some(config);
        Ok(self)
    }

    /// Resumes the newest checkpoint that is whole, or begins in a folder without checkpoints. Returns whether there
    /// was one. As many workers as saved it go on with their random numbers; of another number, all but the first are
    /// seeded anew.
    ///
    /// # Errors
    ///
    /// Returns an error if there is nothing to resume, if a new run would mix its checkpoints with those of another, if
    /// the checkpoint does not fit to the parts, or if another worker failed.
    pub fn begin(&mut self, resumes: bool, saved: &mut impl Saved) -> Result<bool, ParallelError> {
        if self.config.is_none() {
            return Ok(false);
        }
        let peers = self.worker.peers();
        let mut random = Vec::new();
        let mut parts = with_random(saved, &mut random);
        let found = match &mut self.run {
            Some(run) => checked(peers, run.begin(resumes, &mut parts))?,
            None => None,
        };
        let Some(found) = send(peers, found)? else { return Ok(false) };
        if peers.rank > 0 {
            checked(peers, found.restore(&mut parts, &peers.device))?;
        }
        drop(parts);
        self.step = found.step;
        if random.len() == peers.world {
            let set = set_random_state(&peers.device, random[peers.rank]);
            set.map_err(|error| peers.device_failed(&error))?;
        } else if peers.rank > 0 {
            // The masks of dropout must not begin again.
            let seed = random.first().map_or(0, |first| first.seed);
            self.worker.seed::<Wgsl>(seed ^ self.step);
        }
        Ok(true)
    }

    /// Returns the steps so far, including those before the run was resumed.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Counts a step. Saves after every [`every`](RunConfig::every) steps, and if the end is requested: then the
    /// checkpoint is on the disk when this returns. Returns whether the run is to go on, which all workers do or none.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`save`](Self::save).
    pub fn end_step(&mut self, saved: &mut impl Saved) -> Result<bool, ParallelError> {
        self.step += 1;
        let requests = self.worker.sum(&[f64::from(u8::from(self.stop.is_requested()))])?;
        let stops = requests[0] > 0.0;
        if let Some(run) = &mut self.run {
            run.count_step();
        }
        let every = self.config.and_then(|config| config.every);
        if stops || every.is_some_and(|every| self.step.is_multiple_of(every.max(1))) {
            self.save(saved, None)?;
        }
        if stops {
            self.finish()?;
        }
        Ok(!stops)
    }

    /// Saves all parts, as [`Run::save`] does, with the random numbers of all workers.
    ///
    /// # Errors
    ///
    /// Returns an error if a part cannot be saved, if the checkpoint before could not be written, or if another worker
    /// failed.
    pub fn save(
        &mut self,
        saved: &mut impl Saved,
        score: Option<f64>,
    ) -> Result<(), ParallelError> {
        if self.config.is_none() {
            return Ok(());
        }
        let peers = self.worker.peers();
        let mut random = random_states(peers)?;
        let Some(run) = &mut self.run else { return Ok(()) };
        checked(peers, run.save(&mut with_random(saved, &mut random), score))
    }

    /// Waits until the last checkpoint is written.
    ///
    /// # Errors
    ///
    /// Returns an error if it could not be written.
    pub fn finish(&mut self) -> Result<(), ParallelError> {
        let Some(run) = &mut self.run else { return Ok(()) };
        checked(self.worker.peers(), run.finish())
    }
}

/// Lists the parts of all workers.
fn with_random(saved: &mut impl Saved, random: &mut Vec<RandomState>) -> impl Saved {
    move |parts: &mut Parts<'_>| {
        saved.parts(parts)?;
        parts.value(RANDOM, random)
    }
}

/// Returns where each worker is in its random numbers.
fn random_states(peers: &Peers) -> Result<Vec<RandomState>, ParallelError> {
    let RandomState { seed, block } =
        random_state(&peers.device).map_err(|error| peers.device_failed(&error))?;
    let own = bytemuck::cast_slice(&[seed, block]).to_vec();
    let all = peers.gather(&Label::Random, own)?;
    let words: Vec<u64> = bytemuck::pod_collect_to_vec(&all.concat());
    Ok(words.chunks_exact(2).map(|state| RandomState { seed: state[0], block: state[1] }).collect())
}

/// Returns the checkpoint that the first worker has found, part by part.
fn send(peers: &Peers, found: Option<Checkpoint>) -> Result<Option<Checkpoint>, ParallelError> {
    if peers.world == 1 {
        return Ok(found);
    }
    let list =
        found.as_ref().map(|found| (found.step, found.state.parts.keys().collect::<Vec<_>>()));
    let is_first = peers.rank == 0;
    let list = is_first.then(|| rmp_serde::to_vec(&list)).transpose();
    let list = list.map_err(|error| peers.failed(error.to_string()))?;
    let list = peers.broadcast(&Label::Checkpoint, list)?;
    let list: Option<(u64, Vec<String>)> =
        rmp_serde::from_slice(&list).map_err(|error| peers.failed(error.to_string()))?;
    let Some((step, names)) = list else { return Ok(None) };
    let mut state = State::new();
    for name in names {
        let own = found.as_ref().and_then(|found| found.state.parts.get(&name)).cloned();
        let bytes = peers.broadcast(&Label::Part(name.clone()), own)?;
        if !is_first {
            state.parts.insert(name, Arc::unwrap_or_clone(bytes));
        }
    }
    Ok(found.or(Some(Checkpoint { step, score: None, state, damaged: Vec::new() })))
}

/// Ends the run for all workers if a checkpoint fails.
fn checked<T>(peers: &Peers, result: Result<T, CheckpointError>) -> Result<T, ParallelError> {
    result.map_err(|error| peers.failed(error.to_string()))
}
