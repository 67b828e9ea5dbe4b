//! The workers of a run: on which devices, and how they start.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::board::Board;
use super::threads::ThreadTransport;
use super::{ParallelError, Transport, Worker};
use crate::backend::use_stream;
use crate::device::{DeviceError, ResolvedDevice, WgslDevice, use_on_thread};
use crate::runtime::{Runtime, panic_message};

/// The deadline of a run that sets none.
const DEADLINE: Duration = Duration::from_secs(60);

/// The devices of a run, one for each worker, and how it ends if a worker fails.
///
/// In a command line, they are a list of device selectors: `gpu:0,gpu:1`.
///
/// ```
/// use std::time::Duration;
///
/// use burn_wgsl::WgslDevice;
/// use burn_wgsl::parallel::Workers;
///
/// let workers = Workers::threads([WgslDevice::Cpu]).with_deadline(Duration::from_secs(120));
/// workers.check()?;
/// # Ok::<(), burn_wgsl::parallel::ParallelError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Workers {
    devices: Vec<WgslDevice>,
    oversubscribed: bool,
    deadline: Duration,
}

impl Workers {
    /// One worker on a device, on the thread that calls [`run`]: the program is one without other workers.
    pub fn alone(device: WgslDevice) -> Self {
        Self::threads([device])
    }

    /// A worker on each device, in a thread of its own.
    pub fn threads(devices: impl IntoIterator<Item = WgslDevice>) -> Self {
        let devices = devices.into_iter().collect();
        Self { devices, oversubscribed: false, deadline: DEADLINE }
    }

    /// Allows several workers on one device. They are slower than one, but show what a program does with several.
    #[must_use]
    pub fn oversubscribed(self, oversubscribed: bool) -> Self {
        Self { oversubscribed, ..self }
    }

    /// Sets how long a worker waits for the others, before the run ends with an error [default: 60 s]. The first step
    /// compiles kernels, on a slow device for longer than on a fast one.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Returns workers on other devices, with the same settings.
    #[must_use]
    pub fn on(self, devices: impl IntoIterator<Item = WgslDevice>) -> Self {
        Self { devices: devices.into_iter().collect(), ..self }
    }

    /// Returns whether several workers may be on one device.
    pub fn is_oversubscribed(&self) -> bool {
        self.oversubscribed
    }

    /// Returns how long a worker waits for the others.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Returns the devices of the workers.
    pub fn devices(&self) -> &[WgslDevice] {
        &self.devices
    }

    /// Returns the number of workers.
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// Checks the workers as [`run`] does before it starts them, on devices that are in this machine.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no device or no deadline, if a device does not exist, or if one is listed twice.
    pub fn check(&self) -> Result<(), ParallelError> {
        self.resolved().map(drop)
    }

    /// Returns what the devices of the workers are, and how many workers before each are on the same device.
    fn resolved(&self) -> Result<Vec<(ResolvedDevice, usize)>, ParallelError> {
        if self.deadline.is_zero() {
            return Err(ParallelError::NoDeadline);
        }
        if self.devices.is_empty() {
            return Err(ParallelError::NoDevice);
        }
        let mut copies: HashMap<ResolvedDevice, usize> = HashMap::new();
        let resolved = self.devices.iter().enumerate().map(|(rank, device)| {
            let of_rank = |error| ParallelError::Device { rank, error };
            let resolved = device.resolve().map_err(of_rank)?;
            let copy = copies.entry(resolved).or_default();
            if *copy > 0 && !self.oversubscribed {
                return Err(ParallelError::SameDevice { device: device.canonical().to_string() });
            }
            *copy += 1;
            Ok((resolved, *copy - 1))
        });
        resolved.collect()
    }

    /// Returns the devices, for a model of which each has a part: several GPUs are opened, and have a wgpu instance
    /// each, because those of one instance may not run at the same time. They stay open.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`check`](Self::check), and an error if a device cannot be opened.
    pub fn open(&self) -> Result<Vec<WgslDevice>, ParallelError> {
        Ok(self.open_each()?.into_iter().map(|(device, _)| device).collect())
    }

    /// Returns the devices of the workers, opened, and how many workers before each are on the same device.
    fn open_each(&self) -> Result<Vec<(WgslDevice, usize)>, ParallelError> {
        let resolved = self.resolved()?.into_iter().enumerate();
        let opened = resolved.map(|(rank, (resolved, copy))| {
            let device = match (resolved, self.devices[rank]) {
                (ResolvedDevice::Cpu, _) => WgslDevice::Cpu,
                // A device of the program cannot be opened again.
                (_, device @ WgslDevice::Host(_)) => device,
                (_, device) if self.devices.len() == 1 => device,
                (ResolvedDevice::Adapter(adapter), _) => {
                    own(adapter, copy).map_err(|error| ParallelError::Device { rank, error })?
                }
            };
            Ok((device, copy))
        });
        opened.collect()
    }
}

/// Returns a device of an adapter with a wgpu instance of its own: those of one instance do not run at the same time.
/// It stays open for the next run.
fn own(adapter: usize, copy: usize) -> Result<WgslDevice, DeviceError> {
    static OPENED: Mutex<Vec<((usize, usize), WgslDevice)>> = Mutex::new(Vec::new());
    let mut opened = OPENED.lock();
    let key = (adapter, copy);
    let known = opened.iter().position(|(other, _)| *other == key);
    if let Some(index) = known {
        let (_, device) = opened[index];
        if let Ok(ResolvedDevice::Adapter(number)) = device.resolve() {
            if Runtime::of(number).is_ok() {
                return Ok(device);
            }
            // It was lost.
            Runtime::close(number);
        }
        opened.swap_remove(index);
    }
    let device = WgslDevice::Host(Runtime::open_own(adapter)?);
    opened.push((key, device));
    Ok(device)
}

impl FromStr for Workers {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let devices: Result<Vec<_>, _> = text.split(',').map(WgslDevice::from_str).collect();
        Ok(Self::threads(devices?))
    }
}

/// Runs the program of each worker, and returns their results in the order of their ranks.
///
/// If a worker returns an error, panics or loses its device, all others end at their next exchange, and the error names
/// the first cause. If others wait for a worker for longer than the deadline, they end, too; if it does not come to an
/// exchange within five seconds more, the process ends, with the error and code 1, because a thread cannot be stopped.
/// So what one worker does alone, such as a validation, must take less than the deadline. Work that no other worker
/// waits for has no deadline.
///
/// Errors name steps, which are counted from the beginning of the run by [`Worker::mean`].
///
/// ```
/// use burn_wgsl::parallel::{self, Workers};
///
/// let workers: Workers = "cpu,cpu".parse()?; // gpu:0,gpu:1
/// let sums = parallel::run(workers.oversubscribed(true), |worker| {
///     worker.sum(&[worker.rank() as f64 + 1.0]) // of all workers
/// })?;
/// assert_eq!(sums, [[3.0], [3.0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns an error if a device cannot be opened or is there twice, or if a worker fails.
pub fn run<T, E>(
    workers: Workers,
    program: impl Fn(&Worker) -> Result<T, E> + Sync,
) -> Result<Vec<T>, ParallelError>
where
    T: Send,
    E: Display,
{
    let opened = workers.open_each()?;
    let board = Arc::new(Board::new(opened.len(), workers.deadline));
    let threads = |rank| Arc::new(ThreadTransport::new(rank, opened.len(), &board));
    if let [(device, stream)] = opened[..] {
        return Ok(vec![run_on_stream(threads(0), device, stream, &program)?]);
    }
    let mut results: Vec<Option<T>> = opened.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        for (rank, result) in results.iter_mut().enumerate() {
            let (threads, board, program) = (threads(rank), &*board, &program);
            let (device, stream) = opened[rank];
            let thread = std::thread::Builder::new().name(format!("worker {rank}"));
            let started = thread.spawn_scoped(scope, move || {
                *result = run_on_stream(threads, device, stream, program).ok();
                board.end(rank);
            });
            if let Err(error) = started {
                board.end_with(ParallelError::NoThread { rank, reason: error.to_string() });
                board.end(rank);
            }
        }
        if let Some((failure, running)) = board.wait() {
            let message = "the process ends, because workers do not";
            let _ = writeln!(io::stderr(), "error: {failure}; {message}: {running:?}");
            std::process::exit(1);
        }
    });
    match board.failure() {
        Some(failure) => Err(failure),
        None => Ok(results.into_iter().flatten().collect()),
    }
}

/// Runs the program of one worker on a connection to the others, in the thread that calls. [`run`] does this in each of
/// its threads; a [`Transport`] between processes does it in each process.
///
/// Passes the error of a failed program to [`Transport::fail`].
///
/// # Errors
///
/// Returns the first error of all workers.
pub fn run_on<T, E: Display>(
    transport: Arc<dyn Transport>,
    device: WgslDevice,
    program: impl FnOnce(&Worker) -> Result<T, E>,
) -> Result<T, ParallelError> {
    run_on_stream(transport, device, 0, program)
}

/// As [`run_on`], with a stream of random numbers of its own for each worker of a device.
fn run_on_stream<T, E: Display>(
    transport: Arc<dyn Transport>,
    device: WgslDevice,
    stream: usize,
    program: impl FnOnce(&Worker) -> Result<T, E>,
) -> Result<T, ParallelError> {
    let worker = Worker::new(transport.clone(), device);
    let result = catch_unwind(AssertUnwindSafe(|| {
        use_stream(stream);
        // What the program creates on the default device is on this one.
        let _default = use_on_thread(device)?;
        Ok::<_, DeviceError>(program(&worker))
    }));
    let (rank, step) = (transport.rank(), transport.step());
    let error = match result {
        // It may have passed over the failure of another worker.
        Ok(Ok(Ok(result))) => return transport.failure().map_or(Ok(result), Err),
        // If it is the failure of another worker, that one is known already.
        Ok(Ok(Err(error))) => ParallelError::Failed { rank, step, message: format!("{error:#}") },
        Ok(Err(error)) => ParallelError::Device { rank, error },
        Err(panic) => {
            let message = panic_message(&*panic);
            ParallelError::Panicked { rank, step, message }
        }
    };
    Err(transport.fail(error))
}
