//! The end of a run on request of the user or the system.

#[cfg(any(unix, windows))]
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use thiserror::Error;

/// No signal was received.
const NONE: u8 = 0;

/// The program itself asked for the end.
const BY_PROGRAM: u8 = u8::MAX;

/// Says when a training loop is to end: after the current step, so that a checkpoint can be saved. Clones share the
/// state.
///
/// [`on_signals`](Self::on_signals) sets it at SIGINT (Ctrl-C) and SIGTERM (Slurm, containers), and on Windows at
/// Ctrl-C. A second signal, more than a second later, ends the process at once.
///
/// ```no_run
/// use burn_wgsl::train::Stop;
///
/// # fn step() {}
/// # fn save_and_wait() {}
/// let stop = Stop::on_signals()?;
/// while !stop.is_requested() {
///     step();
/// }
/// save_and_wait();
/// std::process::exit(stop.exit_code().into());
/// # #[allow(unreachable_code)]
/// # Ok::<(), burn_wgsl::train::StopError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stop {
    signal: Arc<AtomicU8>,
}

/// The handlers of signals could not be installed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the handler of signals cannot be installed: {reason}")]
pub struct StopError {
    /// The system's reason.
    pub reason: String,
}

impl Stop {
    /// Creates a state that only [`request`](Self::request) sets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Installs handlers of signals, which set the state. The first signal prints a line on standard error. Later calls
    /// return the same state.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses the handlers, and in a browser.
    pub fn on_signals() -> Result<Self, StopError> {
        static INSTALLED: Mutex<Option<Stop>> = Mutex::new(None);
        let mut installed = INSTALLED.lock();
        if let Some(stop) = &*installed {
            return Ok(stop.clone());
        }
        let stop = Self::new();
        handle(stop.clone())?;
        *installed = Some(stop.clone());
        Ok(stop)
    }

    /// Asks for the end, as a signal does.
    pub fn request(&self) {
        let order = Ordering::Relaxed;
        // A signal that was received stays.
        let _ = self.signal.compare_exchange(NONE, BY_PROGRAM, order, order);
    }

    /// Returns whether the loop is to end after the current step.
    pub fn is_requested(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != NONE
    }

    /// Returns the exit code for the process: 128 + the signal, as a shell does, and 0 without a signal.
    pub fn exit_code(&self) -> u8 {
        match self.signal.load(Ordering::Relaxed) {
            NONE | BY_PROGRAM => 0,
            signal => 128 + signal,
        }
    }
}

/// Handles signals until the process ends.
#[cfg(any(unix, windows))]
struct Handler {
    stop: Stop,
    first: Option<std::time::Instant>,
}

#[cfg(any(unix, windows))]
impl Handler {
    fn receive(&mut self, signal: u8) {
        match self.first {
            None => {
                self.first = Some(std::time::Instant::now());
                self.stop.signal.store(signal, Ordering::Relaxed);
                // A new line, because a progress bar may use the current one. A closed stream is no reason to fail.
                let message = b"\nstopping after this step; a second signal stops at once\n";
                let _ = std::io::stderr().write_all(message);
            }
            // One Ctrl-C can arrive twice: at the process and at its group. So the second counts only after a second.
            Some(first) if first.elapsed().as_secs() < 1 => {}
            Some(_) => std::process::exit(i32::from(128 + signal)),
        }
    }
}

#[cfg(unix)]
fn handle(stop: Stop) -> Result<(), StopError> {
    use signal_hook::consts::{SIGINT, SIGTERM};

    let error = |error: std::io::Error| StopError { reason: error.to_string() };
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(error)?;
    let mut handler = Handler { stop, first: None };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    let run = move || {
        for signal in signals.forever() {
            handler.receive(u8::try_from(signal).unwrap_or_default());
        }
    };
    thread.spawn(run).map(drop).map_err(error)
}

#[cfg(windows)]
fn handle(stop: Stop) -> Result<(), StopError> {
    /// SIGINT, since Windows' events have no numbers.
    const INTERRUPT: u8 = 2;

    let mut handler = Handler { stop, first: None };
    ctrlc::set_handler(move || handler.receive(INTERRUPT))
        .map_err(|error| StopError { reason: error.to_string() })
}

#[cfg(not(any(unix, windows)))]
fn handle(_: Stop) -> Result<(), StopError> {
    Err(StopError { reason: "there are no signals".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_counts_more_than_a_request() {
        let stop = Stop::new();
        assert!(!stop.is_requested());
        stop.signal.store(15, Ordering::Relaxed);
        stop.request();
        let clone = stop.clone();
        assert!(clone.is_requested());
        assert_eq!(clone.exit_code(), 143);
        let stop = Stop::new();
        stop.request();
        assert_eq!((stop.is_requested(), stop.exit_code()), (true, 0));
    }
}
