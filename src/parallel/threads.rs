//! A worker's connection to the others in threads of the same process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ParallelError;
use super::board::{Board, Ticket};
use super::transport::{Gathered, Pending, Transport};

/// The connection of a thread.
pub(super) struct ThreadTransport {
    rank: usize,
    world: usize,
    board: Arc<Board>,
    /// The exchanges so far.
    rounds: AtomicU64,
}

impl ThreadTransport {
    pub fn new(rank: usize, world: usize, board: &Arc<Board>) -> Self {
        Self { rank, world, board: board.clone(), rounds: AtomicU64::new(0) }
    }

    /// Begins an exchange: puts this worker's value. The last worker makes the result of all.
    fn put<T: Send + 'static, R: Send + Sync + 'static>(
        &self,
        what: String,
        value: T,
        make: impl FnOnce(Vec<T>) -> R,
    ) -> Result<Ticket, ParallelError> {
        let ticket = Ticket { round: self.rounds.fetch_add(1, Ordering::Relaxed), what };
        self.board.put(self.rank, &ticket, value, make)?;
        Ok(ticket)
    }
}

impl Transport for ThreadTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn gather(&self, what: String, bytes: Vec<u8>) -> Result<Gathered, ParallelError> {
        let ticket = self.put(what, bytes, |all| all)?;
        self.board.take(self.rank, &ticket)
    }

    fn broadcast(
        &self,
        what: String,
        bytes: Option<Vec<u8>>,
    ) -> Result<Arc<Vec<u8>>, ParallelError> {
        let first =
            |all: Vec<Option<Vec<u8>>>| all.into_iter().next().flatten().unwrap_or_default();
        let ticket = self.put(what, bytes, first)?;
        self.board.take(self.rank, &ticket)
    }

    fn start_sum(
        &self,
        what: String,
        share: f32,
        numbers: Vec<f32>,
    ) -> Result<Pending<Arc<Vec<f32>>>, ParallelError> {
        let ticket = self.put(what, (share, numbers), weighted_sum)?;
        let (board, rank) = (self.board.clone(), self.rank);
        Ok(Box::new(move || board.take(rank, &ticket)))
    }

    fn step(&self) -> u64 {
        self.board.step(self.rank)
    }

    fn end_step(&self) {
        self.board.end_step(self.rank);
    }

    fn fail(&self, error: ParallelError) -> ParallelError {
        self.board.end_with(error)
    }

    fn failure(&self) -> Option<ParallelError> {
        self.board.failure()
    }
}

/// Returns the sum of the numbers of all workers, each times its share, in the order of the workers.
fn weighted_sum(all: Vec<(f32, Vec<f32>)>) -> Vec<f32> {
    // The gradients of a worker without samples may be NaN.
    let mut all = all.into_iter().filter(|(share, _)| *share > 0.0);
    let Some((share, mut sums)) = all.next() else { return Vec::new() };
    sums.iter_mut().for_each(|sum| *sum *= share);
    for (share, numbers) in all {
        sums.iter_mut().zip(&numbers).for_each(|(sum, number)| *sum += share * number);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_weighted() {
        let sum = weighted_sum(vec![(0.25, vec![4.0, 8.0]), (0.75, vec![4.0, 0.0])]);
        assert_eq!(sum, [4.0, 2.0]);
        let without = weighted_sum(vec![(0.0, vec![f32::NAN; 2]), (1.0, vec![1.0, 2.0])]);
        assert_eq!(without, [1.0, 2.0]);
    }
}
