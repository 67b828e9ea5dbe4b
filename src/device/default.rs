//! The device that [`WgslDevice::Auto`] is: the one that the program set, or that a thread uses.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::WgslDevice;

/// Whether a default was ever set: a program without one does no more than read this.
static IS_SET: AtomicBool = AtomicBool::new(false);
static OF_PROGRAM: Mutex<Option<WgslDevice>> = Mutex::new(None);

thread_local! {
    static OF_THREAD: RefCell<Vec<WgslDevice>> = const { RefCell::new(Vec::new()) };
}

/// A device that `auto` is on this thread, until it is dropped: see [`use_on_thread`](super::use_on_thread).
#[must_use = "the thread uses the device until this is dropped"]
#[derive(Debug)]
pub struct DeviceOnThread {
    /// It ends on its own thread.
    _thread: PhantomData<*const ()>,
}

impl DeviceOnThread {
    /// Begins to use a device, which is not `Auto`.
    pub(super) fn begin(device: WgslDevice) -> Self {
        IS_SET.store(true, Ordering::Relaxed);
        OF_THREAD.with_borrow_mut(|devices| devices.push(device));
        Self { _thread: PhantomData }
    }
}

impl Drop for DeviceOnThread {
    fn drop(&mut self) {
        OF_THREAD.with_borrow_mut(Vec::pop);
    }
}

/// Sets the device of the program, which is not `Auto`.
pub(super) fn set(device: Option<WgslDevice>) {
    IS_SET.store(true, Ordering::Relaxed);
    *OF_PROGRAM.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = device;
}

/// Returns the device that `auto` is on this thread; `None` if none is set.
pub(super) fn current() -> Option<WgslDevice> {
    if !IS_SET.load(Ordering::Relaxed) {
        return None;
    }
    let of_thread = OF_THREAD.with_borrow(|devices| devices.last().copied());
    of_thread.or_else(|| *OF_PROGRAM.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}
