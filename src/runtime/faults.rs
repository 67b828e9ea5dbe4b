//! Faults on purpose, for tests: the n-th allocation, upload, compilation, mapping or submission
//! fails, or the device is lost.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The first attempt to create a buffer for tensors: memory is short.
    ShortOfMemory,
    /// The creation of a buffer for tensors, also after unused buffers were destroyed.
    OutOfMemory,
    /// The staging memory of an upload.
    Upload,
    /// The compilation of a kernel.
    Compile,
    /// The compilation of the fast form of a kernel.
    Refuse,
    /// The same, with the loss of the device, as Vulkan drivers do it.
    RefuseAndLose,
    /// The mapping of a buffer for a readback.
    Map,
    /// A submission: its commands do not run.
    Submit,
    /// A submission, in which wgpu panics.
    SubmitPanic,
    /// The device is lost at a submission.
    Loss,
}

/// A fault that is going to happen.
#[derive(Debug)]
struct Planned {
    fault: Fault,
    /// How many times the operation still succeeds.
    successes_left: u64,
}

/// The fault planned for a device.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    planned: AtomicBool,
    plan: Mutex<Option<Planned>>,
}

impl Faults {
    /// Plans a fault after `successes` successes. Replaces the fault planned before.
    pub fn plan(&self, fault: Fault, successes: u64) {
        *self.plan.lock() = Some(Planned { fault, successes_left: successes });
        self.planned.store(true, Ordering::Relaxed);
    }

    /// Cancels the planned fault. Returns whether there was one: it did not happen.
    pub fn cancel(&self) -> bool {
        self.planned.store(false, Ordering::Relaxed);
        self.plan.lock().take().is_some()
    }

    /// Counts one operation, and returns whether it must fail.
    pub fn strikes(&self, fault: Fault) -> bool {
        if !self.planned.load(Ordering::Relaxed) {
            return false;
        }
        let mut plan = self.plan.lock();
        match &mut *plan {
            Some(planned) if planned.fault == fault => {
                match planned.successes_left.checked_sub(1) {
                    Some(left) => {
                        planned.successes_left = left;
                        false
                    }
                    None => {
                        *plan = None;
                        true
                    }
                }
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_once_after_the_given_successes() {
        let faults = Faults::default();
        assert!(!faults.strikes(Fault::Map));
        faults.plan(Fault::Map, 1);
        assert!(!faults.strikes(Fault::Submit));
        assert!(!faults.strikes(Fault::Map));
        assert!(faults.strikes(Fault::Map));
        assert!(!faults.strikes(Fault::Map));
        assert!(!faults.cancel());
        faults.plan(Fault::Loss, 0);
        assert!(faults.cancel());
        assert!(!faults.strikes(Fault::Loss));
    }
}
