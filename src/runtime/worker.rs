//! A thread that does work in the order in which it is sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::sync::mpsc::{Receiver, Sender, channel};
use super::sync::thread::{Builder, JoinHandle};
use super::sync::{Condvar, Mutex};

/// The short waits into which a limit is divided: a suspended process uses up at most one of them.
const ROUNDS: u32 = if cfg!(shuttle) { 2 } else { 30 };

/// The work that waits for the thread, and the results of what is done.
pub(crate) struct Progress<R> {
    state: Mutex<State<R>>,
    advanced: Condvar,
}

struct State<R> {
    /// Pieces of work that are not done yet.
    waiting: usize,
    /// Pieces of work that the thread has done.
    done: u64,
    /// Whether a wait has ended without progress, and there was none since.
    is_stuck: bool,
    /// Results that were not taken, the oldest first.
    results: VecDeque<R>,
}

impl<R> Progress<R> {
    fn new() -> Self {
        let state = State { waiting: 0, done: 0, is_stuck: false, results: VecDeque::new() };
        Self { state: Mutex::new(state), advanced: Condvar::new() }
    }

    /// Waits until at most `pieces` pieces of work wait for the thread. Returns `false` if none is done within `limit`.
    pub fn wait(&self, pieces: usize, limit: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        let (mut done, mut rounds) = (state.done, 0);
        while state.waiting > pieces {
            let Some(limit) = limit else {
                self.advanced.wait(&mut state);
                continue;
            };
            let waited = self.advanced.wait_for(&mut state, limit / ROUNDS);
            if state.done != done {
                (done, rounds) = (state.done, 0);
            } else if waited.timed_out() {
                rounds += 1;
            }
            if rounds == ROUNDS && state.waiting > pieces {
                state.is_stuck = true;
                return false;
            }
        }
        true
    }

    /// Adds a result of work that the caller has done.
    pub fn add_result(&self, result: Option<R>) {
        self.state.lock().results.extend(result);
    }

    /// Takes the oldest results, until `count` are left. Returns the last of those that were taken.
    pub fn take_results(&self, count: usize) -> Option<R> {
        let results = &mut self.state.lock().results;
        let excess = results.len().saturating_sub(count);
        results.drain(..excess).next_back()
    }

    /// Returns whether a wait has ended without progress, and there was none since.
    pub fn is_stuck(&self) -> bool {
        self.state.lock().is_stuck
    }

    /// Returns whether no work waits, and none is being done.
    pub fn is_idle(&self) -> bool {
        self.state.lock().waiting == 0
    }

    /// Returns the latest result.
    pub fn last_result(&self) -> Option<R>
    where
        R: Clone,
    {
        self.state.lock().results.back().cloned()
    }
}

/// A thread that does work in the order in which it is sent.
pub(crate) struct Worker<W, R> {
    thread: Option<(Sender<W>, JoinHandle<()>)>,
    pub progress: Arc<Progress<R>>,
}

impl<W: Send + 'static, R: Send + 'static> Worker<W, R> {
    /// Starts a thread that does work by `run`, which must not panic. Without it, or if it cannot be started, there is
    /// no thread.
    pub fn new(name: &str, run: Option<impl Fn(W) -> Option<R> + Send + 'static>) -> Self {
        let progress = Arc::new(Progress::new());
        let spawn = |run| {
            let (sender, work) = channel();
            let progress = progress.clone();
            let body = move || do_in_order(&work, &progress, run);
            let thread = Builder::new().name(name.to_owned()).spawn(body).ok()?;
            Some((sender, thread))
        };
        Self { thread: run.and_then(spawn), progress }
    }

    /// Sends work to the thread.
    ///
    /// # Errors
    ///
    /// Returns the work if there is no thread.
    pub fn send(&self, work: W) -> Result<(), W> {
        let Some((sender, _)) = &self.thread else { return Err(work) };
        self.progress.state.lock().waiting += 1;
        // The thread runs until the sender is dropped.
        let _ = sender.send(work);
        Ok(())
    }
}

impl<W, R> Drop for Worker<W, R> {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            if !self.progress.state.lock().is_stuck {
                let _ = thread.join();
            }
        }
    }
}

/// Does work until the sender is dropped.
fn do_in_order<W, R>(work: &Receiver<W>, progress: &Progress<R>, run: impl Fn(W) -> Option<R>) {
    while let Ok(piece) = work.recv() {
        let result = run(piece);
        let mut state = progress.state.lock();
        state.waiting -= 1;
        state.done += 1;
        state.is_stuck = false;
        state.results.extend(result);
        progress.advanced.notify_all();
    }
}

#[cfg(all(test, shuttle))]
mod schedules {
    use shuttle::thread;

    use super::super::sync::atomic::{AtomicUsize, Ordering};
    use super::*;

    const SCHEDULES: usize = 20_000;
    const PIECES: usize = 6;
    const LIMIT: usize = 2;

    /// Work is done once, in order; what waits stays limited; a drained worker has done all; dropping it waits.
    #[test]
    fn work_is_done_once_in_order() {
        let schedule = || {
            let done = Arc::new(AtomicUsize::new(0));
            let run = {
                let done = done.clone();
                move |piece: usize| {
                    assert_eq!(done.fetch_add(1, Ordering::SeqCst), piece, "out of order");
                    Some(piece)
                }
            };
            let worker = Worker::new("worker", Some(run));
            let waiter = {
                let progress = worker.progress.clone();
                thread::spawn(move || assert!(progress.wait(0, None), "nothing is stuck"))
            };
            for piece in 0..PIECES {
                worker.send(piece).expect("there is a thread");
                assert!(worker.progress.wait(LIMIT, None), "nothing is stuck");
                assert!(done.load(Ordering::SeqCst) + LIMIT > piece, "too many wait");
            }
            assert!(worker.progress.wait(0, None), "nothing is stuck");
            assert_eq!(done.load(Ordering::SeqCst), PIECES, "a drained worker has done all");
            worker.progress.add_result(Some(PIECES));
            assert_eq!(worker.progress.take_results(1), Some(PIECES - 1));
            worker.send(PIECES).expect("there is a thread");
            drop(worker);
            assert_eq!(done.load(Ordering::SeqCst), PIECES + 1, "dropping waits for the thread");
            waiter.join().expect("it does not panic");
        };
        shuttle::check_random(schedule, SCHEDULES);
    }

    /// Waits end by time or when the work is done, and then it is done.
    #[test]
    fn waits_end() {
        let schedule = || {
            let done = Arc::new(AtomicUsize::new(0));
            let run = {
                let done = done.clone();
                move |piece: usize| {
                    done.fetch_add(1, Ordering::SeqCst);
                    Some(piece)
                }
            };
            let worker = Arc::new(Worker::new("worker", Some(run)));
            let waiters: Vec<_> = (0..2)
                .map(|_| {
                    let (worker, done) = (worker.clone(), done.clone());
                    thread::spawn(move || {
                        for piece in 0..3 {
                            worker.send(piece).expect("there is a thread");
                            if worker.progress.wait(0, Some(Duration::from_secs(1))) {
                                assert!(done.load(Ordering::SeqCst) > piece, "it is done");
                            }
                        }
                    })
                })
                .collect();
            for waiter in waiters {
                waiter.join().expect("it does not panic");
            }
            assert!(worker.progress.wait(0, None), "it goes on");
            assert_eq!(done.load(Ordering::SeqCst), 6);
        };
        shuttle::check_random(schedule, SCHEDULES);
    }
}
