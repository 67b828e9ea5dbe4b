//! What a device does, for memory trackers and profilers: an event for each allocation, release,
//! dispatch, upload, readback and submission, with the op that caused it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::Variant;

/// Something that a device did. Sizes are in bytes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Memory was placed.
    Allocate {
        /// Its size, including padding.
        bytes: u64,
    },
    /// Memory was given back.
    Release {
        /// Its size, including padding.
        bytes: u64,
    },
    /// A kernel launch was recorded.
    Dispatch {
        /// The kernel.
        kernel: &'a Variant,
        /// The estimated number of operations.
        work: u64,
    },
    /// Data was uploaded.
    Upload {
        /// Its size.
        bytes: u64,
    },
    /// Data was read back.
    Readback {
        /// Its size.
        bytes: u64,
    },
    /// Commands were submitted.
    Submit {
        /// The number of kernel launches among them.
        dispatches: usize,
    },
}

/// Receives the events of a device.
pub trait Observer: Send + Sync {
    /// Called for each event, on the thread that caused it, with the op that runs there. The device
    /// may be locked meanwhile: an observer must not use it.
    fn event(&self, op: &'static str, event: Event<'_>);
}

/// The observer of a device, if there is one.
#[derive(Default)]
pub(crate) struct Observers {
    present: AtomicBool,
    observer: RwLock<Option<Arc<dyn Observer>>>,
}

impl Observers {
    /// Sets or removes the observer.
    pub fn set(&self, observer: Option<Arc<dyn Observer>>) {
        let mut current = self.observer.write();
        self.present.store(observer.is_some(), Ordering::Relaxed);
        *current = observer;
    }

    /// Passes an event to the observer. Does nothing without one.
    pub fn notify<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if !self.present.load(Ordering::Relaxed) {
            return;
        }
        if let Some(observer) = &*self.observer.read() {
            observer.event(current_op(), event());
        }
    }
}

thread_local! {
    static CURRENT_OP: Cell<&'static str> = const { Cell::new("") };
}

/// Names the op that runs on this thread from now on.
pub fn set_current_op(op: &'static str) {
    CURRENT_OP.set(op);
}

/// Returns the op that runs on this thread, or ran last. Empty before the first.
pub fn current_op() -> &'static str {
    CURRENT_OP.get()
}
