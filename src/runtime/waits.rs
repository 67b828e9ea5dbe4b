//! Waits of the host for a device: counted, and named on request.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use web_time::Instant;

use super::callers::program_lines;
use super::events::current_scope;
use super::origin::current_op;
use crate::device::CAN_BLOCK;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Whether each wait is named in the log.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// The lines of the program that a message has.
const LINES: usize = 6;

/// What the host waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Data that is read back.
    Readback,
    /// The end of everything recorded.
    Sync,
    /// Submissions before others, because many are in flight.
    Room,
    /// Staging memory that an earlier upload uses.
    Upload,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Readback => "a readback",
            Self::Sync => "the end of all work",
            Self::Room => "earlier submissions, of which many are in flight",
            Self::Upload => "the staging memory of an earlier upload",
        })
    }
}

/// A wait of this thread, until it is dropped.
pub(crate) struct Waiting {
    wait: Wait,
    /// When it began, if it is to be named.
    began: Option<Instant>,
}

impl Waiting {
    pub fn begin(wait: Wait) -> Self {
        COUNT.set(COUNT.get() + 1);
        Self { wait, began: SHOWN.load(Ordering::Relaxed).then(Instant::now) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // A browser does not wait.
        let Some(began) = self.began.filter(|_| CAN_BLOCK) else { return };
        let milliseconds = began.elapsed().as_secs_f64() * 1e3;
        let mut place = String::new();
        for (label, name) in [(", after op ", current_op()), (", scope ", &current_scope())] {
            if !name.is_empty() {
                place += label;
                place += name;
            }
        }
        for line in program_lines(LINES) {
            place += "\n    ";
            place += &line;
        }
        log::warn!("waited {milliseconds:.2} ms for {}{place}", self.wait);
    }
}

/// Returns how often this thread has waited for a GPU: for data that is read back and is not there yet, for the end of
/// all work, and for room where the host is far ahead. A training loop is fast if it rarely waits;
/// [`debug::set_waits`](crate::debug::set_waits) names each wait.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::{Wgsl, WgslDevice, waits_on_thread};
///
/// let x = Tensor::<Wgsl, 1>::ones([4], &WgslDevice::default());
/// let before = waits_on_thread();
/// println!("{}", x.sum().into_scalar()); // one wait on a GPU, none on the CPU
/// assert!(waits_on_thread() - before <= 1);
/// ```
pub fn waits_on_thread() -> u64 {
    COUNT.get()
}

/// Names each wait in the log from now on, or no longer.
pub fn show_waits(shown: bool) {
    SHOWN.store(shown, Ordering::Relaxed);
}
