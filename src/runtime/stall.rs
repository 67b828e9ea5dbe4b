//! Submissions in flight, and waits that end when none of them finishes any more.
//!
//! A driver can hang, and a wait for it would hang the program. A wait ends with an error after
//! `BURN_WGSL_TIMEOUT` seconds in which no submission has finished; with 0 it never ends. The default is 30, and 1,200
//! for software adapters: they compile a kernel while its first launch runs, which takes minutes for large kernels.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use web_time::Instant;

use crate::device::{AdapterKind, CAN_BLOCK};
use crate::variables;

/// The largest launch of a submission.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Largest {
    /// The op and the kernel; empty if there is no launch.
    pub op: &'static str,
    pub kernel: &'static str,
    /// Its estimated number of operations.
    pub work: u64,
    /// The number of launches of the submission.
    pub launches: usize,
}

impl Largest {
    /// Counts a launch.
    pub fn see(&mut self, op: &'static str, kernel: &'static str, work: u64) {
        self.launches += 1;
        if self.launches == 1 || work > self.work {
            (self.op, self.kernel, self.work) = (op, kernel, work);
        }
    }
}

impl std::fmt::Display for Largest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { op, kernel, launches, .. } = self;
        match launches {
            0 => write!(f, "a transfer"),
            1 => write!(f, "the kernel {kernel} of {op}"),
            _ => write!(f, "one of {launches} kernels, of which {kernel} of {op} is the largest"),
        }
    }
}

/// A submission in flight.
struct Submission {
    number: u64,
    largest: Largest,
    submitted: Instant,
}

/// The submissions that have finished.
struct Finished {
    /// The number of the last of them.
    number: u64,
    /// When that was noticed.
    at: Instant,
}

/// The submissions in flight, the oldest first.
pub(crate) struct InFlight {
    /// How long a wait may last without progress; `None` for ever.
    pub limit: Option<Duration>,
    submissions: Mutex<VecDeque<Submission>>,
    /// `None` until one has finished.
    finished: Arc<Mutex<Option<Finished>>>,
    submitted: AtomicU64,
    is_software: bool,
    /// Whether the last wait ended without progress.
    is_stalled: AtomicBool,
}

/// More than can be in flight: others have finished.
const MAX_TRACKED: usize = 128;

/// What a device was doing when it made no progress.
#[derive(Debug)]
pub(crate) struct Stall {
    pub seconds: f64,
    pub running: Largest,
}

/// Returns the value of `BURN_WGSL_TIMEOUT`.
fn timeout() -> Option<f64> {
    static TIMEOUT: LazyLock<Option<f64>> = LazyLock::new(|| {
        // wgpu 30 panics at waits for no time.
        let is_valid = |seconds: &f64| *seconds == 0.0 || (0.001..1e9).contains(seconds);
        variables::TIMEOUT.parse(|text| text.parse().ok().filter(is_valid))
    });
    *TIMEOUT
}

impl InFlight {
    /// Returns an empty list for a device of a kind.
    pub fn new(kind: AdapterKind) -> Self {
        let is_software = kind == AdapterKind::Software;
        let default = if is_software { 1200.0 } else { 30.0 };
        let seconds = timeout().unwrap_or(default);
        Self {
            limit: (seconds > 0.0).then(|| Duration::from_secs_f64(seconds)),
            submissions: Mutex::default(),
            finished: Arc::default(),
            submitted: AtomicU64::default(),
            is_software,
            is_stalled: AtomicBool::new(false),
        }
    }

    /// Returns whether the driver may not return from a submission for a while: that of a software adapter waits for
    /// earlier ones, and any may if they do not end.
    pub fn may_block(&self) -> bool {
        let is_busy = || {
            let last = self.finished.lock().as_ref().map_or(0, |finished| finished.number);
            self.submitted.load(Ordering::Relaxed) > last
        };
        self.is_stalled.load(Ordering::Relaxed) || (self.is_software && is_busy())
    }

    /// Returns how many submissions have not finished, as far as a poll said; `None` if they are not counted.
    pub fn unfinished(&self) -> Option<u64> {
        let last = self.finished.lock().as_ref().map_or(0, |finished| finished.number);
        self.limit.map(|_| self.submitted.load(Ordering::Relaxed).saturating_sub(last))
    }

    /// Adds what was just submitted to a queue.
    pub fn push(&self, queue: &wgpu::Queue, largest: Largest) {
        if !CAN_BLOCK || self.limit.is_none() {
            return;
        }
        let number = self.submitted.fetch_add(1, Ordering::Relaxed) + 1;
        let finished = self.finished.clone();
        // Called by a later poll.
        queue.on_submitted_work_done(move || {
            let mut finished = finished.lock();
            let last = finished.as_ref().map_or(0, |finished| finished.number);
            *finished = Some(Finished { number: number.max(last), at: Instant::now() });
        });
        let mut submissions = self.submissions.lock();
        if submissions.len() == MAX_TRACKED {
            submissions.pop_front();
        }
        submissions.push_back(Submission { number, largest, submitted: Instant::now() });
    }

    /// Waits until a submission has finished, or all of them.
    ///
    /// # Errors
    ///
    /// Returns wgpu's error, or what the device was doing when it made no progress for too long.
    pub fn wait(
        &self,
        device: &wgpu::Device,
        submission: Option<wgpu::SubmissionIndex>,
    ) -> Result<(), WaitError> {
        // The whole limit: wgpu 30 panics if a wait ends without success while another thread's poll finds the
        // submission finished, so waits must rarely end that way.
        let timeout = self.limit;
        loop {
            let submission_index = submission.clone();
            match device.poll(wgpu::PollType::Wait { submission_index, timeout }) {
                Ok(_) => {
                    self.goes_on();
                    return Ok(());
                }
                Err(wgpu::PollError::Timeout) => {
                    if let (Some(limit), Some(stall)) = (timeout, self.stall())
                        && stall.seconds >= limit.as_secs_f64()
                    {
                        self.is_stalled.store(true, Ordering::Relaxed);
                        return Err(WaitError::Stall(stall));
                    }
                }
                Err(error) => return Err(WaitError::Poll(error)),
            }
        }
    }

    /// Notes that a wait has ended with success.
    pub fn goes_on(&self) {
        self.is_stalled.store(false, Ordering::Relaxed);
    }

    /// Returns what runs, and for how long nothing has finished.
    pub fn stall(&self) -> Option<Stall> {
        let (last, at) = match &*self.finished.lock() {
            Some(finished) => (finished.number, Some(finished.at)),
            None => (0, None),
        };
        let mut submissions = self.submissions.lock();
        submissions.retain(|submission| submission.number > last);
        let first = submissions.front()?;
        let since = at.map_or(first.submitted, |at| at.max(first.submitted));
        Some(Stall { seconds: since.elapsed().as_secs_f64(), running: first.largest })
    }
}

/// Why a wait has ended too early.
pub(crate) enum WaitError {
    Stall(Stall),
    Poll(wgpu::PollError),
}
