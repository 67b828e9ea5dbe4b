//! The count of ops that ran on the CPU although their tensors are on a GPU.

use std::collections::BTreeMap;

use parking_lot::Mutex;

static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Counts a fallback of `op`, and warns at the first.
pub(crate) fn count(op: &'static str) {
    let mut counts = COUNTS.lock();
    let count = counts.entry(op).or_insert(0);
    *count += 1;
    if *count == 1 {
        log::warn!(
            "{op} has no kernel for these tensors: it runs on the CPU, with a transfer each way; \
             this is said once"
        );
    }
}

/// The ops that ran on the CPU for want of a kernel, each with how often, since the start of the
/// process or [`reset_fallbacks`]. Ops on [`WgslDevice::Cpu`](crate::WgslDevice::Cpu) do not count.
pub fn fallbacks() -> BTreeMap<String, u64> {
    COUNTS.lock().iter().map(|(op, count)| ((*op).to_owned(), *count)).collect()
}

/// Starts the count of [`fallbacks`] anew.
pub fn reset_fallbacks() {
    COUNTS.lock().clear();
}
