//! Which devices the tests run on, and how close results must be.
//!
//! The cases do not choose devices: the runner does. The software adapter is used where there is one, a
//! real GPU too, and the CPU always. A device that is missing is shown as skipped, unless
//! `BURN_WGSL_TEST_REQUIRE` names it: then it fails the test.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

mod tolerance;

use std::io::Write;

use burn_wgsl::WgslDevice;
use burn_wgsl::device::ResolvedDevice;

pub use tolerance::{
    CHAINED_F16, CLOSE, DIFFERENCE, SUMMED, Tolerance, assert_close, tolerance_of,
};

/// Every device of this machine that tests run on.
pub fn devices() -> Vec<WgslDevice> {
    let mut devices = gpus();
    devices.push(WgslDevice::Cpu);
    devices
}

/// The GPUs of this machine, the software adapter among them.
pub fn gpus() -> Vec<WgslDevice> {
    let _ = env_logger::builder().is_test(true).try_init();
    let required = std::env::var("BURN_WGSL_TEST_REQUIRE").unwrap_or_default();
    let mut found = Vec::new();
    for device in [WgslDevice::Software, WgslDevice::Gpu(0)] {
        match device.resolve() {
            Ok(ResolvedDevice::Adapter(_)) => found.push(device),
            Ok(ResolvedDevice::Cpu) => {}
            Err(error) => {
                assert!(required != device.to_string(), "{required} is required: {error}");
                // Straight to the terminal: what a passing test prints is not shown.
                let _ = writeln!(std::io::stderr(), "GPU cases skipped on {device}: there is none");
            }
        }
    }
    found
}

/// The cases of the case list. `BURN_WGSL_TEST_CASES=sort,conv3d` leaves those whose op's name contains one of the words.
pub fn cases() -> impl Iterator<Item = &'static burn_wgsl::kernels::cases::Case> {
    let words = std::env::var("BURN_WGSL_TEST_CASES").unwrap_or_default();
    burn_wgsl::kernels::cases::all()
        .filter(move |case| words.is_empty() || words.split(',').any(|word| case.op.contains(word)))
}
