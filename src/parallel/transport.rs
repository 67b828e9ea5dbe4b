//! What connects the workers of a run.

use std::sync::Arc;

use super::ParallelError;

/// The result of an exchange that has begun: waits for the other workers.
pub type Pending<T> = Box<dyn FnOnce() -> Result<T, ParallelError> + Send>;

/// The bytes of all workers, in the order of their ranks.
pub type Gathered = Arc<Vec<Vec<u8>>>;

/// Connects a worker with the others of its run. [`run`](super::run) connects threads of this process; a program, or
/// another crate, can connect processes, and run a worker on its connection with [`run_on`](super::run_on).
///
/// All workers make the same exchanges in the same order. `what` says what an exchange is for, in words for an error
/// message, and is equal on all workers, also the length of what is added. If it is not, if a worker has failed, or if
/// one does not come before a deadline, an exchange returns an error, and so do all after it.
pub trait Transport: Send + Sync {
    /// Returns the number of this worker, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of workers.
    fn world(&self) -> usize;

    /// Returns the bytes of all workers, which may have different lengths.
    ///
    /// # Errors
    ///
    /// See [`Transport`].
    fn gather(&self, what: String, bytes: Vec<u8>) -> Result<Gathered, ParallelError>;

    /// Returns the bytes of the first worker, which alone has some.
    ///
    /// # Errors
    ///
    /// See [`Transport`].
    fn broadcast(
        &self,
        what: String,
        bytes: Option<Vec<u8>>,
    ) -> Result<Arc<Vec<u8>>, ParallelError>;

    /// Begins to add the numbers of all workers, each times its worker's share. Those of a worker with a share of 0 may
    /// be NaN, and do not count. All workers get the same bits. Several sums may be under way.
    ///
    /// # Errors
    ///
    /// See [`Transport`].
    fn start_sum(
        &self,
        what: String,
        share: f32,
        numbers: Vec<f32>,
    ) -> Result<Pending<Arc<Vec<f32>>>, ParallelError>;

    /// Returns the step of this worker, from 0.
    fn step(&self) -> u64;

    /// Begins the next step.
    fn end_step(&self);

    /// Ends the run for all workers, unless it has failed already. Returns the first error.
    fn fail(&self, error: ParallelError) -> ParallelError;

    /// Returns why the run failed.
    fn failure(&self) -> Option<ParallelError>;
}
