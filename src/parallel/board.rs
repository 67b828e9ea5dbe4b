//! Where threads exchange values: each puts one at the same point of the program, and takes the result of all.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use web_time::Instant;

use super::ParallelError;

/// How long a worker may go on when the others have stopped to wait for it.
const GRACE: Duration = Duration::from_secs(5);

type Value = Box<dyn Any + Send>;
type Made = Arc<dyn Any + Send + Sync>;

/// An exchange that not all workers have taken from.
struct Round {
    labels: Vec<Option<String>>,
    values: Vec<Option<Value>>,
    made: Option<Made>,
    taken: usize,
}

/// What is known of a worker.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    step: u64,
    has_ended: bool,
}

#[derive(Default)]
struct State {
    rounds: HashMap<u64, Round>,
    workers: Vec<Progress>,
    /// Why the run ends, and since when that is known.
    failure: Option<(ParallelError, Instant)>,
}

/// Where the workers of a run exchange values.
pub(super) struct Board {
    deadline: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

/// An exchange to which a worker came.
#[must_use = "other workers wait until it is taken"]
pub(super) struct Ticket {
    pub round: u64,
    /// As messages name it, equal on all workers.
    pub what: String,
}

impl Board {
    pub fn new(world: usize, deadline: Duration) -> Self {
        let state = State { workers: vec![Progress::default(); world], ..State::default() };
        Self { deadline, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Puts the value of a worker. The last of them makes the result of all, in the order of their ranks.
    pub fn put<T: Send + 'static, R: Send + Sync + 'static>(
        &self,
        rank: usize,
        ticket: &Ticket,
        value: T,
        make: impl FnOnce(Vec<T>) -> R,
    ) -> Result<(), ParallelError> {
        let mut state = self.state.lock();
        if let Some((failure, _)) = &state.failure {
            return Err(failure.clone());
        }
        let world = state.workers.len();
        let round = state.rounds.entry(ticket.round).or_insert_with(|| Round {
            labels: vec![None; world],
            values: (0..world).map(|_| None).collect(),
            made: None,
            taken: 0,
        });
        round.labels[rank] = Some(ticket.what.clone());
        if round.labels.iter().flatten().any(|label| *label != ticket.what) {
            let values = round.labels.iter().map(|label| match label {
                Some(label) => label.clone(),
                None => "nothing yet".to_owned(),
            });
            let (what, values) = ("what they exchange".to_owned(), values.collect());
            let error = ParallelError::Disagree { what, values };
            return Err(self.fail(&mut state, error));
        }
        round.values[rank] = Some(Box::new(value));
        if round.values.iter().any(Option::is_none) {
            return Ok(());
        }
        let values = round.values.iter_mut().filter_map(Option::take);
        // Equal labels have values of one type.
        let values: Vec<T> =
            values.filter_map(|value| value.downcast().ok()).map(|value| *value).collect();
        drop(state);
        let made: Made = Arc::new(make(values));
        if let Some(round) = self.state.lock().rounds.get_mut(&ticket.round) {
            round.made = Some(made);
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for the result of an exchange.
    pub fn take<R: Send + Sync + 'static>(
        &self,
        rank: usize,
        ticket: &Ticket,
    ) -> Result<Arc<R>, ParallelError> {
        // `None` for ever.
        let due = Instant::now().checked_add(self.deadline);
        let mut state = self.state.lock();
        loop {
            if let Some((failure, _)) = &state.failure {
                return Err(failure.clone());
            }
            let world = state.workers.len();
            let Some(round) = state.rounds.get_mut(&ticket.round) else { break };
            if let Some(made) = round.made.clone() {
                round.taken += 1;
                if round.taken == world {
                    state.rounds.remove(&ticket.round);
                }
                match made.downcast() {
                    Ok(made) => return Ok(made),
                    Err(_) => break,
                }
            }
            let missing: Vec<usize> =
                (0..world).filter(|&other| round.labels[other].is_none()).collect();
            let step = state.workers[rank].step;
            let ended = missing.iter().find(|&&other| state.workers[other].has_ended);
            let what = || ticket.what.clone();
            if let Some(&other) = ended {
                let steps = state.workers[other].step;
                let error =
                    ParallelError::Ended { rank: other, steps, waiting: rank, what: what(), step };
                return Err(self.fail(&mut state, error));
            }
            if due.is_some_and(|due| Instant::now() >= due) {
                let deadline = self.deadline;
                let error =
                    ParallelError::Overdue { waiting: rank, missing, what: what(), step, deadline };
                return Err(self.fail(&mut state, error));
            }
            self.wait_for_change(&mut state, due);
        }
        // Only a worker that takes twice gets here.
        let (message, step) = ("an exchange was taken twice".to_owned(), state.workers[rank].step);
        Err(self.fail(&mut state, ParallelError::Failed { rank, step, message }))
    }

    fn wait_for_change(&self, state: &mut MutexGuard<'_, State>, due: Option<Instant>) {
        match due.map(|due| due.saturating_duration_since(Instant::now())) {
            Some(rest) => drop(self.changed.wait_for(state, rest)),
            None => self.changed.wait(state),
        }
    }

    /// Notes why the run ends, unless it is known. Returns the first cause.
    fn fail(&self, state: &mut MutexGuard<'_, State>, error: ParallelError) -> ParallelError {
        let (first, _) = state.failure.get_or_insert((error, Instant::now()));
        self.changed.notify_all();
        first.clone()
    }

    /// Ends the run with an error of a worker, unless it has failed already. Returns the first error.
    pub fn end_with(&self, error: ParallelError) -> ParallelError {
        self.fail(&mut self.state.lock(), error)
    }

    /// Notes that a worker begins its next step.
    pub fn end_step(&self, rank: usize) {
        self.state.lock().workers[rank].step += 1;
    }

    /// Returns the step of a worker, from 0.
    pub fn step(&self, rank: usize) -> u64 {
        self.state.lock().workers[rank].step
    }

    /// Notes that the program of a worker ended.
    pub fn end(&self, rank: usize) {
        self.state.lock().workers[rank].has_ended = true;
        self.changed.notify_all();
    }

    /// Returns why the run ended, if it failed.
    pub fn failure(&self) -> Option<ParallelError> {
        self.state.lock().failure.as_ref().map(|(failure, _)| failure.clone())
    }

    /// Waits until the programs of all workers have ended. If the run has failed and workers do not end, returns the
    /// cause and them.
    pub fn wait(&self) -> Option<(ParallelError, Vec<usize>)> {
        let mut state = self.state.lock();
        loop {
            let running: Vec<usize> =
                (0..state.workers.len()).filter(|&rank| !state.workers[rank].has_ended).collect();
            if running.is_empty() {
                return None;
            }
            let Some((failure, since)) = &state.failure else {
                self.changed.wait(&mut state);
                continue;
            };
            // A worker that computes comes to its next exchange; one that others waited for does not.
            let grace = match failure {
                ParallelError::Overdue { .. } => GRACE,
                _ => self.deadline.saturating_add(GRACE),
            };
            let due = since.checked_add(grace);
            if due.is_some_and(|due| Instant::now() >= due) {
                return Some((failure.clone(), running));
            }
            self.wait_for_change(&mut state, due);
        }
    }
}
