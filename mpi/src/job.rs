//! A job of MPI: how its ranks start and end.

use std::cell::Cell;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use burn_wgsl::WgslDevice;
use burn_wgsl::device::automatic_devices;
use burn_wgsl::parallel::{self, ParallelError, Transport, Worker, Workers};
use mpi::Threading;
use mpi::environment::{initialize_with_threading, library_version, processor_name};
use mpi::traits::Communicator;

use crate::MpiError;
use crate::control::Control;
use crate::launcher::launched;
use crate::link::{GRACE, Link, Operation, Task};
use crate::ranks::RankTransport;
use crate::shared::Shared;

/// How long a failed process stays alive, so that its error reaches the other ranks before the launcher kills them.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// The workers of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    workers: Workers,
    expected: Option<usize>,
    in_bf16: bool,
}

impl Job {
    /// A job whose machines have these devices, one for each rank in the order of the ranks of a machine, and without
    /// a launcher one for each worker. An empty list is that of the machine's usable GPUs, or the CPU. The deadline
    /// and whether ranks may share a device are those of `workers`.
    pub fn new(workers: Workers) -> Self {
        Self { workers, expected: None, in_bf16: false }
    }

    /// Sets how many workers there must be, so that a job with fewer does not train another model.
    #[must_use]
    pub fn expects(self, workers: usize) -> Self {
        Self { expected: Some(workers), ..self }
    }

    /// Sends gradients as bf16: half the bytes, and two roundings to 8 binary digits. They are added in f32. Between
    /// threads of a process they stay in f32.
    #[must_use]
    pub fn in_bf16(self, in_bf16: bool) -> Self {
        Self { in_bf16, ..self }
    }
}

impl From<Workers> for Job {
    fn from(workers: Workers) -> Self {
        Self::new(workers)
    }
}

/// What MPI knows of a process.
struct Place {
    rank: usize,
    world: usize,
    /// Its rank among those of the machine, and their number.
    local: usize,
    ranks: usize,
    machine: String,
    library: String,
}

/// Runs the program of each worker of this process, and returns their results: of one worker if an MPI launcher has
/// started several processes, and otherwise of one for each device, as [`parallel::run`] does.
///
/// If a worker fails, the others end as in [`parallel::run`], and all of them return an error. Their processes should
/// then end: five seconds later MPI ends the job.
///
/// MPI is started once in a process, so there is one run.
///
/// # Errors
///
/// Returns an error if the ranks differ from what the launcher says or the job expects, if a device cannot be opened,
/// or if a worker fails.
pub fn run<T, E>(
    job: impl Into<Job>,
    program: impl Fn(&Worker) -> Result<T, E> + Sync,
) -> Result<Vec<T>, MpiError>
where
    T: Send,
    E: Display,
{
    let Job { workers, expected, in_bf16 } = job.into();
    if workers.deadline().is_zero() {
        return Err(ParallelError::NoDeadline.into());
    }
    let shared = Arc::new(Shared::default());
    let (tasks, thread, place) = start(&shared, workers.deadline(), in_bf16)?;
    let leave = |tasks: Sender<Task>, thread: JoinHandle<()>| {
        drop(tasks);
        // It has nothing left to wait for.
        let _ = thread.join();
    };
    if let Some((variable, count)) = launched(|name| std::env::var(name).ok())
        && count > 1
        && place.world == 1
    {
        let Place { world: found, library, .. } = place;
        leave(tasks, thread);
        return Err(MpiError::OtherLauncher { variable, launched: count, found, library });
    }
    let workers = match workers.is_empty() && place.world == 1 {
        true => workers.on(automatic_devices()?),
        false => workers,
    };
    let found = if place.world == 1 { workers.len() } else { place.world };
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        leave(tasks, thread);
        return Err(MpiError::World { expected, found });
    }
    if place.world == 1 {
        leave(tasks, thread);
        return Ok(parallel::run(workers, program)?);
    }
    let (deadline, exchanges) = (workers.deadline(), AtomicU64::new(0));
    let Place { rank, world, .. } = place;
    let ranks = Arc::new(RankTransport { rank, world, deadline, shared, tasks, exchanges });
    let result = work(&workers, &place, &ranks, &program);
    if let Err(error) = &result {
        log::error!("worker {rank} of {world} ends: {error}");
        // If MPI cannot end the job, this process ends nevertheless.
        let _ = std::thread::Builder::new().spawn(|| {
            std::thread::sleep(GRACE * 2);
            std::process::abort();
        });
        std::thread::sleep(REPORT_TIME);
    } else {
        // All ranks have finished, so that MPI can.
        let _ = thread.join();
    }
    Ok(vec![result?])
}

/// Starts the thread of MPI. Returns what MPI knows of this process.
fn start(
    shared: &Arc<Shared>,
    deadline: Duration,
    in_bf16: bool,
) -> Result<(Sender<Task>, JoinHandle<()>, Place), MpiError> {
    let (tasks, to_make) = channel();
    let (placed, place) = channel();
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name("mpi".to_owned());
    let thread = thread.spawn(move || serve(shared, deadline, in_bf16, &to_make, &placed));
    let thread = thread.map_err(|error| MpiError::NoThread(error.to_string()))?;
    match place.recv_timeout(deadline) {
        Ok(Some(place)) => Ok((tasks, thread, place)),
        Ok(None) => Err(MpiError::Started),
        Err(RecvTimeoutError::Disconnected) => Err(MpiError::Ended),
        Err(RecvTimeoutError::Timeout) => Err(MpiError::Slow(deadline)),
    }
}

/// Ends the run if its thread panics.
struct FailsIfPanicked {
    rank: usize,
    shared: Arc<Shared>,
}

impl Drop for FailsIfPanicked {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let message = "the thread of MPI panicked".to_owned();
            let (rank, step) = (self.rank, self.shared.step());
            self.shared.fail(ParallelError::Failed { rank, step, message }, true);
        }
    }
}

/// The thread that calls MPI.
fn serve(
    shared: Arc<Shared>,
    deadline: Duration,
    in_bf16: bool,
    tasks: &Receiver<Task>,
    placed: &Sender<Option<Place>>,
) {
    // This thread is the one that calls MPI.
    let Some((universe, _)) = initialize_with_threading(Threading::Funneled) else {
        // `run` may have timed out.
        let _ = placed.send(None);
        return;
    };
    let world = universe.world();
    {
        let rank = world.rank() as usize;
        // A panic of this thread must end the run.
        let _panic = FailsIfPanicked { rank, shared: shared.clone() };
        let local = world.split_shared(world.rank());
        let place = Place {
            rank,
            world: world.size() as usize,
            local: local.rank() as usize,
            ranks: local.size() as usize,
            machine: processor_name().unwrap_or_else(|_| "a machine".to_owned()),
            library: library_version().unwrap_or_else(|_| "unknown".to_owned()),
        };
        let (comm, control) = (world.duplicate(), Control::new(world.duplicate()));
        // `run` may have timed out.
        let _ = placed.send(Some(place));
        let link = Link { comm, control, shared, deadline, in_bf16, exchanges: Cell::new(0) };
        link.serve(tasks);
    }
    drop(universe);
}

/// Runs the program on this rank's device, and ends with all others.
fn work<T, E: Display>(
    workers: &Workers,
    place: &Place,
    ranks: &Arc<RankTransport>,
    program: impl Fn(&Worker) -> Result<T, E>,
) -> Result<T, MpiError> {
    let device = match device(workers, place) {
        Ok(device) => device,
        Err(error) => {
            let message = error.to_string();
            ranks.fail(ParallelError::Failed { rank: place.rank, step: 0, message });
            return Err(error);
        }
    };
    let transport: Arc<dyn Transport> = ranks.clone();
    let result = parallel::run_on(transport, device, |worker| {
        worker.agree("the program", executable()).map_err(|error| error.to_string())?;
        program(worker).map_err(|error| format!("{error:#}"))
    })?;
    let end = ranks.start("the end of the program".to_owned(), Operation::End)?;
    ranks.wait(end, None)?;
    Ok(result)
}

/// Returns the device of a rank.
fn device(workers: &Workers, place: &Place) -> Result<WgslDevice, MpiError> {
    let mut devices = workers.devices().to_vec();
    if devices.is_empty() {
        devices = automatic_devices()?;
    }
    if place.ranks > devices.len() && !workers.is_oversubscribed() {
        let mut list = String::new();
        for device in &devices {
            let separator = if list.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(list, "{separator}{device}");
        }
        return Err(MpiError::FewDevices {
            machine: place.machine.clone(),
            ranks: place.ranks,
            list,
        });
    }
    // Another machine may have more of them.
    let used = devices.len().min(place.ranks);
    workers.clone().on(devices[..used].iter().copied()).check()?;
    let device = devices[place.local % devices.len()];
    device.resolve()?;
    Ok(device)
}

/// Returns what is equal if two processes run the same program.
fn executable() -> String {
    let bytes = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    format!("burn-wgsl {} in {:08x}", env!("CARGO_PKG_VERSION"), crc32fast::hash(&bytes))
}
