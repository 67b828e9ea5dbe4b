//! Which submission a thread is making: errors that wgpu reports meanwhile are its errors.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Marks this thread as making a submission, until it is dropped.
pub(super) struct Submitting;

impl Submitting {
    pub fn begin(serial: u64) -> Self {
        CURRENT.set(Some(serial));
        Self
    }
}

impl Drop for Submitting {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// Returns the serial number of the submission that this thread is making, if it is making one.
pub(super) fn current_submission() -> Option<u64> {
    CURRENT.get()
}
