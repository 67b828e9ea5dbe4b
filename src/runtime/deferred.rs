//! Work that was asked for but not recorded yet.

use std::any::Any;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::RuntimeError;

/// Work that is recorded when its result is needed, or when the device waits.
pub trait Deferred: Any + Send + Sync {
    /// Records the work, unless it was recorded before.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be recorded.
    fn record(self: Arc<Self>) -> Result<(), RuntimeError>;

    /// Returns whether the work was recorded.
    fn is_recorded(&self) -> bool;

    /// Returns the work as a value of any type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// Work and its signature.
type Entry = (u64, Weak<dyn Deferred>);

/// Deferred work that is no longer needed is dropped by its owners: the list does not keep it.
#[derive(Default)]
pub(super) struct DeferredWork {
    list: Mutex<List>,
    recording: Mutex<()>,
}

#[derive(Default)]
struct List {
    work: Vec<Entry>,
    /// The length at which recorded and dropped work is removed.
    full: usize,
}

impl DeferredWork {
    /// Adds work.
    pub fn push(&self, signature: u64, work: Weak<dyn Deferred>) {
        let mut list = self.list.lock();
        if list.work.len() >= list.full {
            list.work.retain(|(_, work)| is_pending(work));
            list.full = (2 * list.work.len()).max(256);
        }
        list.work.push((signature, work));
    }

    /// Returns the pending work with a signature, in the order in which it was added.
    pub fn like(&self, signature: u64) -> Vec<Arc<dyn Deferred>> {
        let list = self.list.lock();
        let equal = list.work.iter().filter(|(other, _)| *other == signature);
        equal.filter_map(|(_, work)| work.upgrade()).filter(|work| !work.is_recorded()).collect()
    }

    /// Returns all work, in the order in which it was added.
    pub fn all(&self) -> Vec<Weak<dyn Deferred>> {
        self.list.lock().work.iter().map(|(_, work)| work.clone()).collect()
    }

    /// Returns a lock under which the state of deferred work changes.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.recording.lock()
    }
}

fn is_pending(work: &Weak<dyn Deferred>) -> bool {
    work.upgrade().is_some_and(|work| !work.is_recorded())
}
