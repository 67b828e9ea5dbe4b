//! A worker's device, and its connection to the others.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use web_time::Instant;

use super::ParallelError;
use super::transport::{Gathered, Pending, Transport};
use crate::device::WgslDevice;

/// An exchange, as messages name it. Equal on all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Label {
    /// The shapes of a module whose parameters are sent.
    Shapes(String),
    /// A tensor of the first worker.
    Tensor { index: usize, of: usize },
    /// The samples of a step, and the shapes of gradients.
    Samples(String),
    /// A bucket of gradients.
    Bucket { index: usize, of: usize, len: usize },
    /// Numbers that are added.
    Sum(usize),
    /// A value that must be equal.
    Agreement(String),
    /// Checksums of parameters.
    Checksums,
    /// Measured speeds.
    Speed,
    /// The random numbers of a checkpoint.
    Random,
    /// A checkpoint that is resumed.
    Checkpoint,
    /// A part of it.
    Part(String),
}

impl Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shapes(shapes) => write!(f, "a broadcast of {shapes}"),
            Self::Tensor { index, of } => write!(f, "a broadcast of tensor {} of {of}", index + 1),
            Self::Samples(shapes) => write!(f, "the mean of gradients of {shapes}"),
            Self::Bucket { index, of, len } => {
                write!(f, "bucket {} of {of} of the gradients, {len} numbers", index + 1)
            }
            Self::Sum(len) => write!(f, "a sum of {len} numbers"),
            Self::Agreement(what) => write!(f, "an agreement on {what}"),
            Self::Checksums => f.write_str("a comparison of parameters"),
            Self::Speed => f.write_str("measured speeds"),
            Self::Random => f.write_str("the random numbers of a checkpoint"),
            Self::Checkpoint => f.write_str("a checkpoint"),
            Self::Part(name) => write!(f, "the part `{name}` of a checkpoint"),
        }
    }
}

/// Adds the time of an exchange to a sum.
fn timed<T>(sum: &AtomicU64, exchange: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = exchange();
    sum.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    result
}

/// A worker's device, and its connection to the others.
pub(super) struct Peers {
    pub rank: usize,
    pub world: usize,
    pub device: WgslDevice,
    transport: Arc<dyn Transport>,
    /// The time that exchanges have taken, in nanoseconds.
    exchanging: Arc<AtomicU64>,
    /// Whether gradients are exchanged during a backward pass.
    is_watching: AtomicBool,
}

impl Peers {
    pub fn new(transport: Arc<dyn Transport>, device: WgslDevice) -> Self {
        let (rank, world) = (transport.rank(), transport.world());
        let (exchanging, is_watching) = (Arc::default(), AtomicBool::new(false));
        Self { rank, world, device, transport, exchanging, is_watching }
    }

    /// Returns the time that exchanges have taken: waits for the others, and sums.
    pub fn exchanging(&self) -> Duration {
        Duration::from_nanos(self.exchanging.load(Ordering::Relaxed))
    }

    /// Returns the connection for an exchange that is not of gradients.
    fn idle(&self, label: &Label) -> Result<&dyn Transport, ParallelError> {
        if self.is_watching.load(Ordering::Relaxed) {
            let (rank, what) = (self.rank, label.to_string());
            return Err(self.fail(ParallelError::Watching { rank, step: self.step(), what }));
        }
        Ok(&*self.transport)
    }

    /// Notes whether gradients are exchanged until the mean is taken: other exchanges are errors.
    pub fn set_watching(&self, is_watching: bool) {
        self.is_watching.store(is_watching, Ordering::Relaxed);
    }

    /// Returns the bytes of all workers.
    pub fn gather(&self, label: &Label, bytes: Vec<u8>) -> Result<Gathered, ParallelError> {
        let transport = self.idle(label)?;
        match self.world {
            1 => Ok(Arc::new(vec![bytes])),
            _ => timed(&self.exchanging, || transport.gather(label.to_string(), bytes)),
        }
    }

    /// Returns the numbers of all workers, of which each has the same number.
    pub fn gather_numbers(
        &self,
        label: &Label,
        numbers: &[f64],
    ) -> Result<Vec<Vec<f64>>, ParallelError> {
        let all = self.gather(label, bytemuck::cast_slice(numbers).to_vec())?;
        Ok(all.iter().map(|bytes| bytemuck::pod_collect_to_vec(bytes)).collect())
    }

    /// Returns the bytes of the first worker, which alone has some.
    pub fn broadcast(
        &self,
        label: &Label,
        bytes: Option<Vec<u8>>,
    ) -> Result<Arc<Vec<u8>>, ParallelError> {
        let transport = self.idle(label)?;
        timed(&self.exchanging, || transport.broadcast(label.to_string(), bytes))
    }

    /// Begins to add the gradients of all workers, each times its share.
    pub fn start_sum(
        &self,
        label: &Label,
        share: f32,
        numbers: Vec<f32>,
    ) -> Result<Pending<Arc<Vec<f32>>>, ParallelError> {
        // The last thread that comes adds the numbers of all.
        let start = || self.transport.start_sum(label.to_string(), share, numbers);
        let pending = timed(&self.exchanging, start)?;
        let exchanging = self.exchanging.clone();
        Ok(Box::new(move || timed(&exchanging, pending)))
    }

    /// Returns the step of this worker, from 0.
    pub fn step(&self) -> u64 {
        self.transport.step()
    }

    /// Ends a step of this worker.
    pub fn end_step(&self) {
        self.transport.end_step();
    }

    /// Ends the run with an error of this worker, unless it has failed already. Returns the first error.
    pub fn fail(&self, error: ParallelError) -> ParallelError {
        self.transport.fail(error)
    }

    /// Ends the run with an error of this worker's program.
    pub fn failed(&self, message: String) -> ParallelError {
        self.fail(ParallelError::Failed { rank: self.rank, step: self.step(), message })
    }

    /// Ends the run with an error of the device.
    pub fn device_failed(&self, error: &dyn Display) -> ParallelError {
        let (rank, step, message) = (self.rank, self.step(), error.to_string());
        self.fail(ParallelError::DeviceFailed { rank, step, message })
    }
}
