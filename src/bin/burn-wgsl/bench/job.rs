//! The unit of work that the runner times.

use std::any::Any;
use std::hint::black_box;

/// What a run returns. It must live until it was computed: what is dropped is not computed.
pub type JobOutput = Box<dyn Any>;

/// A repeatable piece of work. The device may still be computing when [`Job::run`] returns.
pub trait Job {
    /// Creates the inputs that the next `runs` runs consume. Not timed.
    fn create_inputs(&mut self, _runs: usize) {}

    /// Runs the work once.
    fn run(&mut self) -> JobOutput;

    /// Returns whether only the host's time counts: the clock stops before the host waits for the
    /// device.
    fn is_host_time(&self) -> bool {
        false
    }

    /// Returns the maximum number of runs whose inputs can be created at once.
    fn max_runs(&self) -> usize {
        usize::MAX
    }
}

struct OpJob<F>(F);

impl<R: 'static, F: FnMut() -> R> Job for OpJob<F> {
    fn run(&mut self) -> JobOutput {
        Box::new(black_box(self.0()))
    }
}

/// Returns a job that calls `run` and consumes no inputs.
pub fn op<R: 'static>(run: impl FnMut() -> R + 'static) -> Box<dyn Job> {
    Box::new(OpJob(run))
}

/// A job of which only the host's time counts.
struct HostJob(Box<dyn Job>);

impl Job for HostJob {
    fn create_inputs(&mut self, runs: usize) {
        self.0.create_inputs(runs);
    }

    fn run(&mut self) -> JobOutput {
        self.0.run()
    }

    fn is_host_time(&self) -> bool {
        true
    }

    fn max_runs(&self) -> usize {
        // Few enough that the host need not wait for earlier submissions.
        self.0.max_runs().min(16)
    }
}

/// Returns `job` with only the host's time counted.
pub fn host_time(job: Box<dyn Job>) -> Box<dyn Job> {
    Box::new(HostJob(job))
}
