//! Why workers cannot start, or a run of theirs ended.

use std::fmt::Display;
use std::time::Duration;

use thiserror::Error;

use crate::device::DeviceError;

/// An error of [`run`](super::run), or of what workers exchange.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ParallelError {
    /// No device is named.
    #[error("there is no device for a worker; name at least one")]
    NoDevice,
    /// Two workers would share a device.
    #[error(
        "{device} is listed twice, and two workers on one device are slower than one; name each device once, or allow \
         it with `Workers::oversubscribed` (`--oversubscribe`)"
    )]
    SameDevice {
        /// The device.
        device: String,
    },
    /// The deadline is 0.
    #[error("a deadline of 0 ends every exchange; choose at least a second")]
    NoDeadline,
    /// A device does not exist or cannot be opened.
    #[error("the device of worker {rank}: {error}")]
    Device {
        /// The worker.
        rank: usize,
        /// Why.
        error: DeviceError,
    },
    /// The system starts no thread.
    #[error("the thread of worker {rank} cannot be started: {reason}")]
    NoThread {
        /// The worker.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// The program of a worker returned an error.
    #[error("worker {rank} failed in step {step}: {message}")]
    Failed {
        /// The worker.
        rank: usize,
        /// Its step, from 0.
        step: u64,
        /// The error.
        message: String,
    },
    /// The program of a worker panicked.
    #[error("worker {rank} panicked in step {step}: {message}")]
    Panicked {
        /// The worker.
        rank: usize,
        /// Its step, from 0.
        step: u64,
        /// The message of the panic.
        message: String,
    },
    /// A worker ended while others wait for it.
    #[error(
        "worker {rank} has ended after {steps} steps, and worker {waiting} waits for it with {what} in step {step}; \
         give all workers the same number of steps [BW37]"
    )]
    Ended {
        /// The worker that ended.
        rank: usize,
        /// The steps that it took.
        steps: u64,
        /// The worker that waits.
        waiting: usize,
        /// What is exchanged.
        what: String,
        /// The step of the worker that waits.
        step: u64,
    },
    /// Workers did not come to an exchange in time.
    #[error(
        "worker {waiting} has waited {deadline:?} for {} with {what} in step {step}; a worker hangs, or the deadline \
         is too short [BW37]",
        workers(missing)
    )]
    Overdue {
        /// The worker that waited.
        waiting: usize,
        /// The workers that did not come.
        missing: Vec<usize>,
        /// What is exchanged.
        what: String,
        /// The step of the worker that waited.
        step: u64,
        /// The deadline.
        deadline: Duration,
    },
    /// Workers differ in what must be equal.
    #[error("the workers differ in {what}: {}; they must be equal", each(values))]
    Disagree {
        /// What differs.
        what: String,
        /// What each worker has.
        values: Vec<String>,
    },
    /// Another process has found why the run ends.
    #[error("{message} (reported by worker {rank})")]
    Reported {
        /// The worker that found it.
        rank: usize,
        /// Its error.
        message: String,
    },
    /// A worker makes another exchange before it takes the mean of the gradients that it watches.
    #[error(
        "worker {rank} comes to {what} in step {step}, and watches a backward pass; call `Worker::mean` first"
    )]
    Watching {
        /// The worker.
        rank: usize,
        /// Its step, from 0.
        step: u64,
        /// What is exchanged.
        what: String,
    },
    /// A device failed while data was read from it or written to it.
    #[error("the device of worker {rank} failed in step {step}: {message} [BW38]")]
    DeviceFailed {
        /// The worker.
        rank: usize,
        /// Its step, from 0.
        step: u64,
        /// Why.
        message: String,
    },
    /// A batch is too small.
    #[error(
        "a batch of {batch} samples cannot be divided among {workers} workers; choose a larger batch or fewer workers"
    )]
    SmallBatch {
        /// The samples of the batch of all workers.
        batch: usize,
        /// The workers.
        workers: usize,
    },
    /// A batch of a pipeline is empty.
    #[error("a batch has no samples; give a pipeline at least one micro-batch with some")]
    NoSamples,
    /// A measured speed is no positive number.
    #[error("the speed of worker {rank} is {speed}; it must be a number above 0")]
    NoSpeed {
        /// The worker.
        rank: usize,
        /// The speed.
        speed: f64,
    },
}

/// Returns a list of workers, for a message.
fn workers(ranks: &[usize]) -> String {
    let list = joined(ranks);
    if ranks.len() == 1 { format!("worker {list}") } else { format!("the workers {list}") }
}

/// Returns what each worker has, for a message: the workers with equal values together.
fn each(values: &[String]) -> String {
    let mut groups: Vec<(&String, Vec<usize>)> = Vec::new();
    for (rank, value) in values.iter().enumerate() {
        match groups.iter_mut().find(|(other, _)| *other == value) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((value, vec![rank])),
        }
    }
    let groups = groups.iter().map(|(value, ranks)| format!("{} with {value}", workers(ranks)));
    joined(&groups.collect::<Vec<_>>())
}

fn joined(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
