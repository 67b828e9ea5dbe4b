//! The device of an op. Burn's ops return no errors, so failures here panic with the op's name.

use std::sync::Arc;

use crate::device::{CAN_BLOCK, ResolvedDevice, WgslDevice};
use crate::runtime::{Runtime, RuntimeError, set_current_op};

/// Whether this build contains the CPU backend. If not, no tensor is stored there.
pub(crate) const HAS_CPU: bool = cfg!(feature = "cpu");

/// Panics with the error of an op. Names the device that `auto` became, not `auto`.
pub(crate) fn fail(op: &str, device: &WgslDevice, error: &dyn std::fmt::Display) -> ! {
    panic!("{op} on {}: {error}", device.canonical())
}

/// Panics because an op has no kernel and this build has no CPU backend.
pub(crate) fn fail_without_cpu(op: &str) -> ! {
    panic!(
        "{op}: no kernel supports these tensors, and this build has no CPU backend; enable the \
         crate's feature `cpu`"
    )
}

/// Resolves the device of an op.
pub(crate) fn resolve(device: &WgslDevice, op: &str) -> ResolvedDevice {
    device.resolve().unwrap_or_else(|error| fail(op, device, &error))
}

/// Returns the open GPU of a device for an op, opening it if needed; `None` for the CPU.
pub(crate) fn runtime(device: &WgslDevice, op: &'static str) -> Option<Arc<Runtime>> {
    set_current_op(op);
    match resolve(device, op) {
        ResolvedDevice::Cpu => None,
        ResolvedDevice::Adapter(index) => {
            Some(Runtime::of(index).unwrap_or_else(|error| fail(op, device, &error)))
        }
    }
}

/// Panics where the host cannot block until the GPU has finished: in a browser.
pub(crate) fn check_can_block(op: &str, device: &WgslDevice) {
    if !CAN_BLOCK {
        fail(op, device, &RuntimeError::CannotBlock { device: device.canonical().to_string() });
    }
}

/// Panics where an op cannot fall back to the CPU, because the host cannot block: in a browser.
pub(crate) fn check_can_fall_back(op: &str) {
    if !CAN_BLOCK {
        panic!(
            "{op} has no kernel for these tensors, and a browser cannot block to compute it on \
             the CPU"
        );
    }
}
