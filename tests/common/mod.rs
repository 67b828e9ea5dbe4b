//! The devices that tests run on, the case list and the tolerances.
//!
//! Tests run on the software adapter and on the first GPU where they are available, and always on
//! the CPU. A missing device is reported as skipped. If `BURN_WGSL_TEST_REQUIRE` names the missing
//! device, the test fails instead.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of this module")]

mod tolerance;

use std::io::Write;

use burn_wgsl::WgslDevice;
use burn_wgsl::device::ResolvedDevice;

pub use tolerance::{
    CHAINED_F16, CLOSE, FINITE_DIFFERENCE, SUMMED, Tolerance, assert_close, tolerance_of,
};

/// Returns the devices that tests run on: the GPUs of this machine and the CPU.
pub fn devices() -> Vec<WgslDevice> {
    let mut devices = gpus();
    devices.push(WgslDevice::Cpu);
    devices
}

/// Returns the GPUs of this machine, including the software adapter.
pub fn gpus() -> Vec<WgslDevice> {
    let _ = env_logger::builder().is_test(true).try_init();
    let required = std::env::var("BURN_WGSL_TEST_REQUIRE").unwrap_or_default();
    let mut found = Vec::new();
    for device in [WgslDevice::Software, WgslDevice::Gpu(0)] {
        match device.resolve() {
            Ok(ResolvedDevice::Adapter(_)) => found.push(device),
            Ok(ResolvedDevice::Cpu) => {}
            Err(error) => {
                assert!(
                    required != device.to_string(),
                    "BURN_WGSL_TEST_REQUIRE={required}, but: {error}"
                );
                // The test harness hides `eprintln!` of passing tests, so write to stderr directly.
                let _ =
                    writeln!(std::io::stderr(), "GPU cases skipped on {device}: no such device");
            }
        }
    }
    found
}

/// Returns the cases of the case list.
///
/// `BURN_WGSL_TEST_CASES=sort,conv3d` keeps the cases whose op name contains one of these strings.
pub fn cases() -> impl Iterator<Item = &'static burn_wgsl::kernels::common::cases::Case> {
    let filter = std::env::var("BURN_WGSL_TEST_CASES").unwrap_or_default();
    burn_wgsl::kernels::cases().filter(move |case| {
        filter.is_empty() || filter.split(',').any(|part| case.op.contains(part))
    })
}
