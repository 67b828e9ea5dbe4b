//! A worker's connection to the others.

use std::cell::Cell;
use std::fmt::Display;
use std::sync::Arc;

use super::ParallelError;
use super::board::{Board, Exchange, Label};
use crate::device::WgslDevice;

/// A worker's connection to the others of a run.
pub(super) struct Peers {
    pub rank: usize,
    pub world: usize,
    pub device: WgslDevice,
    board: Arc<Board>,
    /// The exchanges so far.
    rounds: Cell<u64>,
}

impl Peers {
    pub fn new(rank: usize, devices: &[WgslDevice], board: &Arc<Board>) -> Self {
        let (world, device) = (devices.len(), devices[rank]);
        Self { rank, world, device, board: board.clone(), rounds: Cell::new(0) }
    }

    /// Begins an exchange: puts this worker's value. The last worker makes the result of all.
    pub fn put<T: Send + 'static, R: Send + Sync + 'static>(
        &self,
        label: Label,
        value: T,
        make: impl FnOnce(Vec<T>) -> R,
    ) -> Result<Exchange, ParallelError> {
        let round = self.rounds.replace(self.rounds.get() + 1);
        let exchange = Exchange { round, label };
        self.board.put(self.rank, &exchange, value, make)?;
        Ok(exchange)
    }

    /// Waits for the result of an exchange.
    pub fn take<R: Send + Sync + 'static>(
        &self,
        exchange: Exchange,
    ) -> Result<Arc<R>, ParallelError> {
        self.board.take(self.rank, exchange)
    }

    /// Exchanges values at once.
    pub fn exchange<T: Send + 'static, R: Send + Sync + 'static>(
        &self,
        label: Label,
        value: T,
        make: impl FnOnce(Vec<T>) -> R,
    ) -> Result<Arc<R>, ParallelError> {
        if self.world == 1 {
            return Ok(Arc::new(make(vec![value])));
        }
        let exchange = self.put(label, value, make)?;
        self.take(exchange)
    }

    /// Ends a step of this worker.
    pub fn end_step(&self) {
        self.board.end_step(self.rank);
    }

    /// Ends the run with an error of this worker, unless it has failed already. Returns the error.
    pub fn fail(&self, error: ParallelError) -> ParallelError {
        self.board.end_with(error.clone());
        error
    }

    /// Ends the run with an error of the device.
    pub fn device_failed(&self, error: &dyn Display) -> ParallelError {
        let step = self.board.step(self.rank);
        let message = error.to_string();
        self.fail(ParallelError::DeviceFailed { rank: self.rank, step, message })
    }
}
