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
        list.work.push((signature, work));
        if list.work.len() <= list.full {
            return;
        }
        drop(list);
        // Whoever has the lock counts references, of which this takes some.
        if let Some(_recording) = self.recording.try_lock() {
            self.remove_recorded();
        }
    }

    /// Removes recorded and dropped work from the list.
    fn remove_recorded(&self) {
        // Dropped without the lock of the list, because work may be dropped with its last reference
        // here.
        let mut owned = Vec::new();
        let mut list = self.list.lock();
        list.work.retain(|(_, work)| {
            let work = work.upgrade();
            let pending = work.as_ref().is_some_and(|work| !work.is_recorded());
            owned.extend(work);
            pending
        });
        list.full = (2 * list.work.len()).max(256);
        drop(list);
    }

    /// Returns the pending work with a signature, in the order in which it was added. The lock of
    /// [`lock`](Self::lock) must be held.
    pub fn like(&self, signature: u64) -> Vec<Arc<dyn Deferred>> {
        let list = self.list.lock();
        let equal = list.work.iter().filter(|(other, _)| *other == signature);
        let mut work: Vec<_> = equal.filter_map(|(_, work)| work.upgrade()).collect();
        drop(list);
        work.retain(|work| !work.is_recorded());
        work
    }

    /// Returns all work, in the order in which it was added.
    pub fn all(&self) -> Vec<Weak<dyn Deferred>> {
        self.list.lock().work.iter().map(|(_, work)| work.clone()).collect()
    }

    /// As [`lock`](Self::lock), unless a thread holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.recording.try_lock()
    }

    /// Returns a lock under which the state of deferred work changes.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.recording.lock()
    }
}
