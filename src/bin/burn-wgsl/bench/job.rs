//! The unit of work that the runner times.

use std::hint::black_box;

/// A repeatable piece of work. The device may still be computing when [`Job::run`] returns.
pub trait Job {
    /// Creates the inputs that the next `runs` runs consume. Not timed.
    fn create_inputs(&mut self, _runs: usize) {}

    /// Runs the work once.
    fn run(&mut self);

    /// Returns the maximum number of runs whose inputs can be created at once.
    fn max_runs(&self) -> usize {
        usize::MAX
    }
}

struct OpJob<F>(F);

impl<R, F: FnMut() -> R> Job for OpJob<F> {
    fn run(&mut self) {
        drop(black_box(self.0()));
    }
}

/// Returns a job that calls `run` and consumes no inputs.
pub fn op<R>(run: impl FnMut() -> R + 'static) -> Box<dyn Job> {
    Box::new(OpJob(run))
}
