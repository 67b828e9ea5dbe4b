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
    /// The devices in use, each with its number: guards may be dropped in any order.
    static OF_THREAD: RefCell<Vec<(u64, WgslDevice)>> = const { RefCell::new(Vec::new()) };
}

/// A device that `auto` is on this thread, until it is dropped: see [`use_on_thread`](super::use_on_thread).
#[must_use = "the thread uses the device until this is dropped"]
#[derive(Debug)]
pub struct DeviceOnThread {
    number: u64,
    /// It ends on its own thread.
    _thread: PhantomData<*const ()>,
}

impl DeviceOnThread {
    /// Begins to use a device, which is not `Auto`.
    pub(super) fn begin(device: WgslDevice) -> Self {
        IS_SET.store(true, Ordering::Relaxed);
        let number = OF_THREAD.with_borrow_mut(|devices| {
            let number = devices.last().map_or(0, |(last, _)| last + 1);
            devices.push((number, device));
            number
        });
        Self { number, _thread: PhantomData }
    }
}

impl Drop for DeviceOnThread {
    fn drop(&mut self) {
        OF_THREAD.with_borrow_mut(|devices| devices.retain(|(other, _)| *other != self.number));
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
    let of_thread = OF_THREAD.with_borrow(|devices| devices.last().map(|(_, device)| *device));
    of_thread.or_else(|| *OF_PROGRAM.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}
