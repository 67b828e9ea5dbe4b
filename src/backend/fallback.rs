//! Counts fallbacks: ops on GPU devices that ran on the CPU.

#[cfg(feature = "internals")]
use std::cell::Cell;
use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The number of fallbacks of each op.
static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

thread_local! {
    #[cfg(feature = "internals")]
    static ON_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Counts a fallback of `op`, and logs a warning at the first one.
pub(crate) fn count(op: &'static str) {
    #[cfg(feature = "internals")]
    ON_THREAD.set(ON_THREAD.get() + 1);
    let mut counts = COUNTS.lock();
    let count = counts.entry(op).or_insert(0);
    *count += 1;
    if *count == 1 {
        log::warn!(
            "{op} has no kernel for these tensors: it runs on the CPU, with a transfer each way \
             (logged once per op) [BW26]"
        );
    }
}

/// Returns the ops on GPU devices that fell back to the CPU, with their counts since the start of
/// the process or [`reset_fallbacks`]. Ops on [`WgslDevice::Cpu`](crate::WgslDevice::Cpu) are not
/// fallbacks.
///
/// ```
/// for (op, count) in burn_wgsl::fallbacks() {
///     println!("{op} ran on the CPU {count} times");
/// }
/// ```
pub fn fallbacks() -> BTreeMap<String, u64> {
    COUNTS.lock().iter().map(|(op, count)| ((*op).to_owned(), *count)).collect()
}

/// Returns the number of fallbacks on this thread, for tests.
#[cfg(feature = "internals")]
pub fn fallbacks_on_thread() -> u64 {
    ON_THREAD.get()
}

/// Resets the counts of [`fallbacks`] to zero.
///
/// ```standalone_crate
/// burn_wgsl::reset_fallbacks();
/// // A step of the program.
/// assert!(burn_wgsl::fallbacks().is_empty(), "no op ran on the CPU");
/// ```
pub fn reset_fallbacks() {
    COUNTS.lock().clear();
}
