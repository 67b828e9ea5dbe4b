//! Requests that wait for the thread of a model.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use thiserror::Error;

/// How requests are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinConfig {
    /// The most requests of a batch.
    pub batch: usize,
    /// How long the oldest request waits for others to join it. At 0, a batch has the requests that are there.
    pub wait: Duration,
    /// The most requests that wait. Others are refused.
    pub waiting: usize,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Too many requests wait.
    #[error("{0} requests wait already")]
    Full(usize),
    /// The queue was closed, or the thread of the model has ended.
    #[error("no more requests are accepted")]
    Closed,
}

/// A request that was refused.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct Refused<T> {
    /// The request.
    pub request: T,
    /// Why it was refused.
    pub reason: Refusal,
}

#[derive(Debug)]
struct State<T> {
    /// With the time at which each arrived.
    waiting: VecDeque<(Instant, T)>,
    is_closed: bool,
}

#[derive(Debug)]
struct Queue<T> {
    config: JoinConfig,
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Queue<T> {
    fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}

/// Closes the queue when the last clone of [`Requests`] is dropped.
#[derive(Debug)]
struct Inlet<T>(Arc<Queue<T>>);

impl<T> Drop for Inlet<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Where requests are put in, by any number of threads.
#[derive(Debug)]
pub struct Requests<T>(Arc<Inlet<T>>);

impl<T> Clone for Requests<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Where the thread of a model takes requests from. When it is dropped, those that wait are dropped, too, and others
/// are refused.
#[derive(Debug)]
pub struct Joined<T>(Arc<Queue<T>>);

/// Creates a queue of requests.
///
/// ```
/// use std::time::Duration;
///
/// use burn_wgsl::serve::{JoinConfig, requests};
///
/// let config = JoinConfig { batch: 8, wait: Duration::from_millis(2), waiting: 64 };
/// let (sender, joined) = requests(config);
/// // The thread that owns the model.
/// let model = std::thread::spawn(move || {
///     let mut answered = 0;
///     while let Some(batch) = joined.next() {
///         answered += batch.len();
///     }
///     answered
/// });
/// for request in 0..20 {
///     sender.send(request)?;
/// }
/// drop(sender);
/// // All requests that were accepted are answered.
/// assert_eq!(model.join().unwrap(), 20);
/// # Ok::<(), burn_wgsl::serve::Refused<i32>>(())
/// ```
///
/// # Panics
///
/// Panics if batches, or the queue, hold no requests.
pub fn requests<T>(config: JoinConfig) -> (Requests<T>, Joined<T>) {
    assert!(config.batch > 0 && config.waiting > 0, "a queue of no requests: {config:?}");
    let state = Mutex::new(State { waiting: VecDeque::new(), is_closed: false });
    let queue = Arc::new(Queue { config, state, changed: Condvar::new() });
    (Requests(Arc::new(Inlet(queue.clone()))), Joined(queue))
}

impl<T> Requests<T> {
    /// Puts a request into the queue, without waiting.
    ///
    /// # Errors
    ///
    /// Gives the request back if the queue is full or closed.
    pub fn send(&self, request: T) -> Result<(), Refused<T>> {
        let queue = &self.0.0;
        let mut state = queue.state.lock();
        if state.is_closed {
            return Err(Refused { request, reason: Refusal::Closed });
        }
        let waiting = state.waiting.len();
        if waiting >= queue.config.waiting {
            return Err(Refused { request, reason: Refusal::Full(waiting) });
        }
        state.waiting.push_back((Instant::now(), request));
        drop(state);
        queue.changed.notify_one();
        Ok(())
    }

    /// Drops the requests that wait and are wanted no longer, for example because a client has gone.
    pub fn discard(&self, is_unwanted: impl Fn(&T) -> bool) {
        let mut state = self.0.0.state.lock();
        let (unwanted, waiting): (VecDeque<_>, VecDeque<_>) =
            state.waiting.drain(..).partition(|(_, request)| is_unwanted(request));
        state.waiting = waiting;
        drop(state);
        // What a request does when it is dropped may ask the queue.
        drop(unwanted);
    }

    /// Returns how many requests wait.
    pub fn waiting(&self) -> usize {
        self.0.0.state.lock().waiting.len()
    }

    /// Refuses all further requests, from all clones. Those that wait are still answered.
    pub fn close(&self) {
        self.0.0.close();
    }
}

impl<T> Joined<T> {
    /// Waits for requests. Returns the oldest, in the order of their arrival: a whole batch, or fewer once the oldest
    /// has waited for others as long as it may. `None` if the queue is closed and empty.
    pub fn next(&self) -> Option<Vec<T>> {
        let JoinConfig { batch, wait, .. } = self.0.config;
        let mut state = self.0.state.lock();
        loop {
            let Some(&(arrived, _)) = state.waiting.front() else {
                if state.is_closed {
                    return None;
                }
                self.0.changed.wait(&mut state);
                continue;
            };
            // `None`: later than any time.
            let deadline = arrived.checked_add(wait);
            let is_due = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if is_due || state.is_closed || state.waiting.len() >= batch {
                let count = batch.min(state.waiting.len());
                return Some(state.waiting.drain(..count).map(|(_, request)| request).collect());
            }
            match deadline {
                Some(deadline) => drop(self.0.changed.wait_until(&mut state, deadline)),
                None => self.0.changed.wait(&mut state),
            }
        }
    }

    /// Returns the oldest request, if there is one now: for a model that answers others meanwhile.
    pub fn take(&self) -> Option<T> {
        self.0.state.lock().waiting.pop_front().map(|(_, request)| request)
    }

    /// Waits until a request is there. Returns `false` if the queue is closed and empty.
    pub fn wait(&self) -> bool {
        let mut state = self.0.state.lock();
        while state.waiting.is_empty() && !state.is_closed {
            self.0.changed.wait(&mut state);
        }
        !state.waiting.is_empty()
    }
}

impl<T> Drop for Joined<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // What a request does when it is dropped may ask the queue.
        drop(waiting);
    }
}
