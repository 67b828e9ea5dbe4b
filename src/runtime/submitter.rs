//! Submits recorded commands, natively on a thread of its own.
//!
//! `CommandEncoder::finish` takes about half of the host's time for an op: it tracks the use of
//! buffers and writes barriers. The thread does this while the program records the next batch.

use std::sync::Arc;

use super::RuntimeError;
use super::gpu::Gpu;
use super::stall::Largest;
use super::submitting::Submitting;
use super::worker::{self, Worker};
use crate::device::CAN_BLOCK;

/// Batches that may wait for the thread: enough to keep it busy.
const MAX_WAITING: usize = 2;
/// At most this many submissions are in flight, because each of them uses driver memory.
pub(super) const MAX_IN_FLIGHT: usize = 32;

/// Recorded commands and the data that they read.
pub(crate) struct Batch {
    pub encoder: wgpu::CommandEncoder,
    /// Data for buffers, written before the commands run.
    pub writes: [(wgpu::Buffer, Vec<u8>); 2],
    /// Serial number of the submission.
    pub serial: u64,
    pub largest: Largest,
}

impl Batch {
    /// Submits the commands. If wgpu panics, their results are lost, and `None` is returned: the panic must not reach a
    /// caller that holds locks.
    fn submit(self, gpu: &Gpu, then: Then) -> Option<wgpu::SubmissionIndex> {
        let _submitting = Submitting::begin(self.serial);
        gpu.catch(|| self.submit_or_panic(gpu, then))
    }

    fn submit_or_panic(self, gpu: &Gpu, then: Then) -> wgpu::SubmissionIndex {
        let Self { encoder, writes, largest, .. } = self;
        let index = gpu.submit(&writes, Some(encoder), largest);
        if then == Then::Reclaim {
            gpu.reclaim();
        }
        index
    }
}

/// What follows a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// A poll, by which wgpu frees what finished submissions used.
    Reclaim,
    /// The polls of a caller that waits.
    Wait,
}

/// What became of commands that were to be submitted.
pub(crate) struct Submitted {
    /// The submission, if there were commands and wgpu did not panic.
    pub index: Option<wgpu::SubmissionIndex>,
    pub serial: u64,
    /// Whether these commands failed, and not only some before them.
    pub has_failed: bool,
}

/// The batches that wait for the thread, and the submissions in flight.
pub(crate) type Progress = worker::Progress<wgpu::SubmissionIndex>;

impl Progress {
    /// Waits until at most `batches` batches wait for the thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver does not return from a submission.
    fn wait_for(&self, gpu: &Gpu, batches: usize) -> Result<(), RuntimeError> {
        match self.wait(batches, gpu.wait_limit()) {
            true => Ok(()),
            false => Err(gpu.submission_error()),
        }
    }

    /// Waits until another batch may be recorded. Returns the submission that the caller must wait
    /// for, because too many are in flight.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver does not return from a submission.
    pub fn wait_for_room(&self, gpu: &Gpu) -> Result<Option<wgpu::SubmissionIndex>, RuntimeError> {
        self.wait_for(gpu, MAX_WAITING)?;
        Ok(self.take_results(MAX_IN_FLIGHT))
    }
}

/// Submits batches, in order.
pub(crate) struct Submitter {
    /// Has no thread in a browser.
    worker: Worker<Batch, wgpu::SubmissionIndex>,
    gpu: Arc<Gpu>,
}

impl Drop for Submitter {
    fn drop(&mut self) {
        // The worker waits for its thread, unless it was found not to go on.
        if !self.worker.progress.is_stuck() {
            let _ = self.drain();
        }
    }
}

impl Submitter {
    pub fn new(gpu: &Arc<Gpu>) -> Self {
        let submit = {
            let gpu = gpu.clone();
            CAN_BLOCK.then_some(move |batch: Batch| batch.submit(&gpu, Then::Reclaim))
        };
        Self { worker: Worker::new("burn-wgsl submit", submit), gpu: gpu.clone() }
    }

    /// Returns what the callers of [`submit_later`](Self::submit_later) wait for.
    pub fn progress(&self) -> Arc<Progress> {
        self.worker.progress.clone()
    }

    /// Submits a batch later. The caller calls [`Progress::wait_for_room`] before it records more.
    pub fn submit_later(&self, batch: Batch) {
        if let Err(batch) = self.worker.send(batch) {
            self.submit_here(batch, Then::Reclaim);
        }
    }

    /// Submits a batch, after those before it. If the driver may not return from the submission for a while, the thread
    /// does it.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not return. The batch is submitted when it does.
    pub fn submit(&self, batch: Batch) -> Result<Submitted, RuntimeError> {
        let (serial, gpu, progress) = (batch.serial, &self.gpu, &self.worker.progress);
        let batch = match progress.is_idle() && !gpu.may_block() {
            true => Some(batch),
            false => self.worker.send(batch).err(),
        };
        let index = match batch {
            Some(batch) => self.submit_here(batch, Then::Wait),
            None => {
                self.drain()?;
                // The caller's lock keeps others from sending more.
                progress.last_result()
            }
        };
        Ok(Submitted { has_failed: index.is_none() || gpu.has_failed(serial), index, serial })
    }

    /// Submits a batch by the calling thread.
    fn submit_here(&self, batch: Batch, then: Then) -> Option<wgpu::SubmissionIndex> {
        let index = batch.submit(&self.gpu, then);
        self.worker.progress.add_result(index.clone());
        index
    }

    /// Returns an error while the driver does not return from a submission, for which nobody waits any more.
    pub fn check(&self) -> Result<(), RuntimeError> {
        match self.worker.progress.is_stuck() {
            true => Err(self.gpu.submission_error()),
            false => Ok(()),
        }
    }

    /// Waits until all batches are submitted.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver does not return from a submission.
    pub fn drain(&self) -> Result<(), RuntimeError> {
        self.worker.progress.wait_for(&self.gpu, 0)
    }

    /// Forgets the submissions in flight. Called when the host waits until all of them have
    /// finished.
    pub fn forget_in_flight(&self) {
        self.worker.progress.take_results(0);
    }
}
