//! A run of several workers that is saved and resumed.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use super::peers::{Label, Peers};
use super::{ParallelError, Worker};
use crate::backend::{RandomState, Wgsl, random_state, set_random_state};
use crate::train::{Checkpoint, CheckpointError, Parts, Run, RunConfig, Saved, State, Stop};

/// The part with the random numbers of all workers.
const RANDOM: &str = "worker-random";

/// A [`Run`] of several workers. The first worker saves one checkpoint for all of them. When the run is resumed, it
/// reads the checkpoint and sends it to the others, which need no access to its folder. Save what does not depend on
/// the number of workers, so that another number of them can go on: [`Parts::loader_of`] does so for a
/// [`Part`](super::Part).
///
/// All workers call its methods in the same order. An error ends the run of all workers. Those that wait for the first
/// while it reads or writes a checkpoint wait no longer than their deadline: choose one that is longer.
///
/// The parts that [`Saved`] lists are those of the first worker. The names `random` and `worker-random` are taken.
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
///     run.resume(&mut trainer)?;
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

    /// Resumes the newest checkpoint that is not damaged; without any, the run begins. Returns whether there was one.
    /// If the number of workers is unchanged, each continues its random numbers. Otherwise, all but the first are
    /// seeded again.
    ///
    /// # Errors
    ///
    /// Returns an error if the checkpoint does not match the parts, or if another worker failed.
    pub fn resume(&mut self, saved: &mut impl Saved) -> Result<bool, ParallelError> {
        self.start(saved, |run, parts| run.resume(parts))
    }

    /// Begins as a command line with an option to resume asks for it: resumes, or starts in a folder without
    /// checkpoints. Returns `resumes`. That of the first worker counts.
    ///
    /// # Errors
    ///
    /// Returns an error if there is nothing to resume, or if a new run would mix its checkpoints with those of another;
    /// also those of [`resume`](Self::resume).
    pub fn begin(&mut self, resumes: bool, saved: &mut impl Saved) -> Result<bool, ParallelError> {
        if resumes && self.config.is_none() {
            let message = "a run without a folder cannot be resumed; call `SharedRun::saved_to`";
            return Err(self.worker.peers().failed(message.to_owned()));
        }
        self.start(saved, |run, parts| run.begin(resumes, parts))
    }

    /// Lets the first worker start its run, and gives the others the checkpoint that it has found.
    fn start<S: Saved>(
        &mut self,
        saved: &mut S,
        start: impl FnOnce(&mut Run, &mut Listed<'_, S>) -> Result<Option<Checkpoint>, CheckpointError>,
    ) -> Result<bool, ParallelError> {
        if self.config.is_none() {
            return Ok(false);
        }
        let peers = self.worker.peers();
        let mut parts = Listed { saved, random: Vec::new() };
        let found = match &mut self.run {
            Some(run) => checked(peers, start(run, &mut parts))?,
            None => None,
        };
        let Some(found) = broadcast_checkpoint(peers, found)? else { return Ok(false) };
        self.step = found.step;
        // The first has its parts and its random numbers.
        if peers.rank > 0 {
            checked(peers, found.restore(&mut parts, &peers.device))?;
            if parts.random.len() == peers.world {
                let set = set_random_state(&peers.device, parts.random[peers.rank]);
                set.map_err(|error| peers.device_failed(&error))?;
            } else {
                // The masks of dropout must not begin again.
                let seed = parts.random.first().map_or(0, |first| first.seed);
                self.worker.seed::<Wgsl>(seed ^ self.step);
            }
        }
        Ok(true)
    }

    /// Returns the steps so far, including those before the run was resumed.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Counts a step, and exchanges with the other workers whether the end is requested. Saves after every
    /// [`every`](RunConfig::every) steps, and at the end: then the checkpoint is on the disk when this returns on the
    /// first worker. Returns whether the run is to go on. The result is equal on all workers.
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

    /// Saves all parts, as [`Run::save`] does, with the random numbers of all workers. The score of the first counts.
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
        let random = random_states(peers)?;
        let Some(run) = &mut self.run else { return Ok(()) };
        checked(peers, run.save(&mut Listed { saved, random }, score))
    }

    /// Waits on the first worker until the last checkpoint is written.
    ///
    /// # Errors
    ///
    /// Returns an error if it could not be written.
    pub fn finish(&mut self) -> Result<(), ParallelError> {
        let Some(run) = &mut self.run else { return Ok(()) };
        checked(self.worker.peers(), run.finish())
    }
}

/// What a checkpoint has.
struct Listed<'a, S> {
    saved: &'a mut S,
    /// The random states of all workers. A run of one worker without a [`SharedRun`] has none.
    random: Vec<RandomState>,
}

impl<S: Saved> Saved for Listed<'_, S> {
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        self.saved.parts(parts)?;
        parts.optional_value(RANDOM, &mut self.random)
    }
}

/// Returns the random state of each worker.
fn random_states(peers: &Peers) -> Result<Vec<RandomState>, ParallelError> {
    let RandomState { seed, block } =
        random_state(&peers.device).map_err(|error| peers.device_failed(&error))?;
    let own = bytemuck::cast_slice(&[seed, block]).to_vec();
    let all = peers.gather(&Label::Random, own)?;
    let words: Vec<u64> = bytemuck::pod_collect_to_vec(&all.concat());
    Ok(words.chunks_exact(2).map(|state| RandomState { seed: state[0], block: state[1] }).collect())
}

/// Gives all workers the checkpoint that the first has found, part by part. The first needs the parts no more.
fn broadcast_checkpoint(
    peers: &Peers,
    found: Option<Checkpoint>,
) -> Result<Option<Checkpoint>, ParallelError> {
    if peers.world == 1 {
        return Ok(found);
    }
    let is_first = peers.rank == 0;
    let failed = |error: &dyn Display| peers.failed(error.to_string());
    let list = found.as_ref().map(|found| (found.step, Vec::from_iter(found.state.parts.keys())));
    let list = is_first.then(|| rmp_serde::to_vec(&list)).transpose();
    let list = peers.broadcast(&Label::Checkpoint, list.map_err(|error| failed(&error))?)?;
    let list: Option<(u64, Vec<String>)> =
        rmp_serde::from_slice(&list).map_err(|error| failed(&error))?;
    let Some((step, names)) = list else { return Ok(None) };
    let mut own = found.map_or_else(State::new, |found| found.state);
    let mut state = State::new();
    for name in names {
        let bytes = own.parts.remove(&name);
        let bytes = peers.broadcast(&Label::Part(name.clone()), bytes)?;
        if !is_first {
            state.parts.insert(name, Arc::unwrap_or_clone(bytes));
        }
    }
    Ok(Some(Checkpoint { step, score: None, state, damaged: Vec::new() }))
}

/// Ends the run for all workers if a checkpoint fails.
fn checked<T>(peers: &Peers, result: Result<T, CheckpointError>) -> Result<T, ParallelError> {
    result.map_err(|error| peers.failed(error.to_string()))
}
