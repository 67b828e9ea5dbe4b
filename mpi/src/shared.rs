//! What the thread of the program and that of MPI share.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn_wgsl::parallel::ParallelError;

/// The result of an exchange.
pub type Outcome = Box<dyn Any + Send>;

/// A failure of the run.
#[derive(Debug, Clone)]
pub struct Failure {
    pub error: ParallelError,
    /// This process has to tell the others.
    pub is_own: bool,
}

#[derive(Default)]
struct State {
    outcomes: HashMap<u64, Outcome>,
    failure: Option<Failure>,
    /// When the exchange began that is under way.
    busy_since: Option<Instant>,
}

/// What the thread of the program and that of MPI share.
#[derive(Default)]
pub struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    step: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the step of the program.
    pub fn step(&self) -> u64 {
        self.step.load(Ordering::Relaxed)
    }

    /// Begins the next step.
    pub fn end_step(&self) {
        self.step.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that an exchange begins.
    pub fn begin(&self) {
        self.lock().busy_since = Some(Instant::now());
    }

    /// Gives the result of an exchange to the program.
    pub fn finish(&self, exchange: u64, outcome: Outcome) {
        let mut state = self.lock();
        state.busy_since = None;
        state.outcomes.insert(exchange, outcome);
        self.changed.notify_all();
    }

    /// Notes why the run ends, unless it is known. Returns the first error.
    pub fn fail(&self, error: ParallelError, is_own: bool) -> ParallelError {
        let mut state = self.lock();
        let failure = Failure { error, is_own };
        let first = state.failure.get_or_insert(failure).error.clone();
        self.changed.notify_all();
        first
    }

    /// Returns why the run ends, if it does.
    pub fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    /// Waits for the result of an exchange.
    ///
    /// # Errors
    ///
    /// Returns why the run failed. If MPI itself does not come back from a call for longer than `limit`, `stuck` says
    /// so.
    pub fn wait(
        &self,
        exchange: u64,
        limit: Option<Duration>,
        stuck: impl Fn() -> ParallelError,
    ) -> Result<Outcome, ParallelError> {
        const POLL: Duration = Duration::from_secs(1);
        let mut state = self.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.error.clone());
            }
            if let Some(outcome) = state.outcomes.remove(&exchange) {
                return Ok(outcome);
            }
            if let (Some(since), Some(limit)) = (state.busy_since, limit)
                && since.elapsed() > limit
            {
                drop(state);
                return Err(self.fail(stuck(), true));
            }
            let waited = self.changed.wait_timeout(state, POLL);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
