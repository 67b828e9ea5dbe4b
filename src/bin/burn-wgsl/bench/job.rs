//! What is timed.

use std::hint::black_box;

/// Something that can be run again and again. What it computes may still be under way on the device when `run` returns.
pub trait Job {
    /// Makes ready what the next `runs` runs will use up. Not timed.
    fn stock(&mut self, _runs: usize) {}

    /// Does it once.
    fn run(&mut self);

    /// The most runs that can be made ready at once.
    fn most_runs(&self) -> usize {
        usize::MAX
    }
}

struct Op<F>(F);

impl<R, F: FnMut() -> R> Job for Op<F> {
    fn run(&mut self) {
        drop(black_box(self.0()));
    }
}

/// A job that needs nothing made ready.
pub fn op<R>(run: impl FnMut() -> R + 'static) -> Box<dyn Job> {
    Box::new(Op(run))
}
