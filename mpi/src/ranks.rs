//! The connection of a worker to the other ranks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use burn_wgsl::parallel::{Gathered, ParallelError, Pending, Transport};

use crate::link::{Operation, Task};
use crate::shared::{Outcome, Shared};

/// How much longer than the deadline a call of MPI may take.
const STUCK: Duration = Duration::from_secs(4);

/// The connection of a worker to the other ranks, by the thread that calls MPI.
pub struct RankTransport {
    pub rank: usize,
    pub world: usize,
    pub deadline: Duration,
    pub shared: Arc<Shared>,
    pub tasks: Sender<Task>,
    pub exchanges: AtomicU64,
}

impl RankTransport {
    /// Starts an exchange. Returns its number.
    pub fn start(&self, what: String, operation: Operation) -> Result<u64, ParallelError> {
        if let Some(failure) = self.shared.failure() {
            return Err(failure.error);
        }
        let exchange = self.exchanges.fetch_add(1, Ordering::Relaxed);
        let task = Task { exchange, what, operation };
        match self.tasks.send(task) {
            Ok(()) => Ok(exchange),
            Err(_) => Err(self.fail(self.stuck())),
        }
    }

    /// Waits for the result of an exchange.
    pub fn wait(&self, exchange: u64, limit: Option<Duration>) -> Result<Outcome, ParallelError> {
        self.shared.wait(exchange, limit, || self.stuck())
    }

    fn limit(&self) -> Option<Duration> {
        self.deadline.checked_add(STUCK)
    }

    fn stuck(&self) -> ParallelError {
        stuck(self.rank, self.shared.step())
    }

    fn taken<T: 'static>(&self, outcome: Outcome) -> Result<T, ParallelError> {
        outcome.downcast().map(|value| *value).map_err(|_| self.fail(self.stuck()))
    }
}

/// Returns the error of a call of MPI that does not return.
fn stuck(rank: usize, step: u64) -> ParallelError {
    let message = "a call of MPI does not return".to_owned();
    ParallelError::Failed { rank, step, message }
}

impl Transport for RankTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn gather(&self, what: String, bytes: Vec<u8>) -> Result<Gathered, ParallelError> {
        let exchange = self.start(what, Operation::Gather(bytes))?;
        self.taken(self.wait(exchange, self.limit())?)
    }

    fn broadcast(
        &self,
        what: String,
        bytes: Option<Vec<u8>>,
    ) -> Result<Arc<Vec<u8>>, ParallelError> {
        let exchange = self.start(what, Operation::Broadcast(bytes))?;
        self.taken(self.wait(exchange, self.limit())?)
    }

    fn start_sum(
        &self,
        what: String,
        share: f32,
        numbers: Vec<f32>,
    ) -> Result<Pending<Arc<Vec<f32>>>, ParallelError> {
        let exchange = self.start(what, Operation::Sum { share, numbers })?;
        let (shared, limit) = (self.shared.clone(), self.limit());
        let (rank, step) = (self.rank, self.shared.step());
        let stuck = move || stuck(rank, step);
        Ok(Box::new(move || {
            let outcome = shared.wait(exchange, limit, stuck)?;
            outcome.downcast().map(|sums| *sums).map_err(|_| shared.fail(stuck(), true))
        }))
    }

    fn step(&self) -> u64 {
        self.shared.step()
    }

    fn end_step(&self) {
        self.shared.end_step();
    }

    fn fail(&self, error: ParallelError) -> ParallelError {
        self.shared.fail(error, true)
    }

    fn failure(&self) -> Option<ParallelError> {
        self.shared.failure().map(|failure| failure.error)
    }
}
