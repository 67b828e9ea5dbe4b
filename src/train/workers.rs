//! Threads that run jobs of a loader, as long as the loader lives.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::LoaderError;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs in order. They end when this is dropped, each after its job; they are not waited for, since
/// a job may hang.
#[derive(Debug)]
pub(super) struct Workers {
    jobs: Sender<Job>,
}

impl Workers {
    /// Starts threads.
    pub fn start(count: usize) -> Result<Self, LoaderError> {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        for index in 0..count {
            let queue = queue.clone();
            let thread = thread::Builder::new().name(format!("loader {index}"));
            let started = thread.spawn(move || {
                while let Some(job) = next(&queue) {
                    // An unclaimed result is dropped here, and may panic. The thread must live on.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                }
            });
            started.map_err(|error| LoaderError::NoThread { reason: error.to_string() })?;
        }
        Ok(Self { jobs })
    }

    /// Queues a job.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        // The threads end after the sender only.
        let _ = self.jobs.send(Box::new(job));
    }
}

/// Waits for a job; `None` if there will be none.
fn next(queue: &Mutex<Receiver<Job>>) -> Option<Job> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}
