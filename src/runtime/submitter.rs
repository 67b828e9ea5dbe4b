//! Submits recorded commands, natively on a thread of its own.
//!
//! `CommandEncoder::finish` takes about half of the host's time for an op: it tracks the use of
//! buffers and writes barriers. The thread does this while the program records the next batch.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use parking_lot::{Condvar, Mutex};

use super::gpu::Gpu;
use super::stall::Largest;
use crate::device::CAN_BLOCK;

/// Batches that may wait for the thread: enough to keep it busy.
const MAX_WAITING: usize = 2;
/// At most this many submissions are in flight, because each of them uses driver memory.
const MAX_IN_FLIGHT: usize = 32;

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
    fn submit(self, gpu: &Gpu) -> Option<wgpu::SubmissionIndex> {
        let _submitting = Submitting::begin(self.serial);
        gpu.catch(|| self.submit_or_panic(gpu))
    }

    fn submit_or_panic(self, gpu: &Gpu) -> wgpu::SubmissionIndex {
        let Self { encoder, writes, largest, .. } = self;
        let index = gpu.submit(&writes, Some(encoder), largest);
        // Lets wgpu reclaim what finished submissions used.
        let _ = gpu.device.poll(wgpu::PollType::Poll);
        index
    }
}

thread_local! {
    static CURRENT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Marks this thread as making a submission, until it is dropped.
struct Submitting;

impl Submitting {
    fn begin(serial: u64) -> Self {
        CURRENT.set(Some(serial));
        Self
    }
}

impl Drop for Submitting {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// Returns the serial number of the submission that this thread is making, if it is making one.
pub(super) fn current_submission() -> Option<u64> {
    CURRENT.get()
}

/// The batches that wait for the thread, and the submissions in flight.
#[derive(Default)]
pub(crate) struct Progress {
    state: Mutex<ProgressState>,
    advanced: Condvar,
}

#[derive(Default)]
struct ProgressState {
    /// Batches that are not submitted yet.
    waiting: usize,
    /// Batches that the thread has submitted.
    submitted: u64,
    /// Whether the driver does not return from a submission.
    is_stuck: bool,
    in_flight: VecDeque<wgpu::SubmissionIndex>,
}

impl Progress {
    /// Waits until at most `batches` batches wait for the thread. If it submits none for too long, the device is lost,
    /// and `false` is returned.
    fn wait(&self, gpu: &Gpu, batches: usize) -> bool {
        let mut state = self.state.lock();
        while state.waiting > batches && !state.is_stuck {
            let Some(limit) = gpu.wait_limit() else {
                self.advanced.wait(&mut state);
                continue;
            };
            let submitted = state.submitted;
            let waited = self.advanced.wait_for(&mut state, limit);
            if waited.timed_out() && state.submitted == submitted {
                state.is_stuck = true;
                let seconds = limit.as_secs_f64();
                gpu.lose(&format!(
                    "its driver has not returned from a submission for {seconds:.0} s"
                ));
            }
        }
        !state.is_stuck
    }

    /// Waits until another batch may be recorded. Returns the submission that the caller must wait
    /// for, because too many are in flight.
    pub fn wait_for_room(&self, gpu: &Gpu) -> Option<wgpu::SubmissionIndex> {
        self.wait(gpu, MAX_WAITING);
        let in_flight = &mut self.state.lock().in_flight;
        let excess = in_flight.len().saturating_sub(MAX_IN_FLIGHT);
        in_flight.drain(..excess).next_back()
    }
}

/// The thread that submits batches, in order.
pub(crate) struct Submitter {
    /// `None` if there is no thread: in a browser, or because it could not be started.
    thread: Option<(Sender<Batch>, JoinHandle<()>)>,
    pub progress: Arc<Progress>,
}

impl Submitter {
    pub fn new(gpu: &Arc<Gpu>) -> Self {
        let progress = Arc::<Progress>::default();
        let (sender, batches) = channel();
        let run = {
            let (gpu, progress) = (gpu.clone(), progress.clone());
            move || run(&gpu, &batches, &progress)
        };
        let spawn = || Builder::new().name("burn-wgsl submit".to_owned()).spawn(run).ok();
        let thread = if CAN_BLOCK { spawn() } else { None };
        Self { thread: thread.map(|thread| (sender, thread)), progress }
    }

    /// Submits a batch later. The caller calls [`Progress::wait_for_room`] before it records more.
    pub fn submit_later(&self, gpu: &Gpu, batch: Batch) {
        match &self.thread {
            Some((sender, _)) => {
                self.progress.state.lock().waiting += 1;
                // The thread runs until the sender is dropped.
                let _ = sender.send(batch);
            }
            None => {
                self.submit(gpu, batch);
            }
        }
    }

    /// Submits a batch, after those before it.
    pub fn submit(&self, gpu: &Gpu, batch: Batch) -> Option<wgpu::SubmissionIndex> {
        if !self.drain(gpu) {
            return None;
        }
        let index = batch.submit(gpu);
        self.progress.state.lock().in_flight.extend(index.clone());
        index
    }

    /// Waits until all batches are submitted. Returns `false` if the driver does not return from a submission.
    pub fn drain(&self, gpu: &Gpu) -> bool {
        self.progress.wait(gpu, 0)
    }

    /// Forgets the submissions in flight. Called when the host waits until all of them have
    /// finished.
    pub fn forget_in_flight(&self) {
        self.progress.state.lock().in_flight.clear();
    }
}

impl Drop for Submitter {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            if !self.progress.state.lock().is_stuck {
                let _ = thread.join();
            }
        }
    }
}

/// Submits batches until the sender is dropped.
fn run(gpu: &Gpu, batches: &Receiver<Batch>, progress: &Progress) {
    for batch in batches {
        let submitted = batch.submit(gpu);
        let mut state = progress.state.lock();
        state.waiting -= 1;
        state.submitted += 1;
        state.in_flight.extend(submitted);
        progress.advanced.notify_all();
    }
}
