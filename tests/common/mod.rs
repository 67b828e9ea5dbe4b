//! Which devices the tests run on, and how close results must be.
//!
//! The cases do not choose devices: the runner does. The software adapter is used where there is one, a
//! real GPU too, and the CPU always. A device that is missing is shown as skipped, unless
//! `BURN_WGSL_TEST_REQUIRE` names it: then it fails the test.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Write;

use burn_backend::TensorData;
use burn_wgsl::WgslDevice;
use burn_wgsl::device::Place;

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
        match device.place() {
            Ok(Place::Adapter(_)) => found.push(device),
            Ok(Place::Cpu) => {}
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

/// How far a float may be from the truth: relative to its size, or to one near zero.
///
/// Kernels and the twin both compute in f32 and round in another order: a few units in the last place for
/// each step, more for long sums of mixed signs.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    pub relative: f64,
    pub absolute: f64,
}

/// For an op that rounds a few times.
pub const CLOSE: Tolerance = Tolerance { relative: 2e-6, absolute: 1e-6 };
/// For a gradient against a central difference in f64, whose own error is some 1e-8: what is left is f32's.
pub const DIFFERENCE: Tolerance = Tolerance { relative: 1e-3, absolute: 3e-4 };
/// For a gradient in f16, whose chain rounds a few results to 11 bits on the way.
pub const CHAINED_F16: Tolerance = Tolerance { relative: 5e-3, absolute: 5e-3 };
/// For an op that sums.
pub const SUMMED: Tolerance = Tolerance { relative: 1e-4, absolute: 1e-4 };

/// For results in a type, from a truth computed in f32: half a unit of the last of its digits (10 bits of mantissa in
/// f16, 7 in bf16), doubled for results that lie between two of its numbers.
pub fn tolerance_of(dtype: burn_backend::DType) -> Tolerance {
    match dtype {
        burn_backend::DType::F16 => Tolerance { relative: 1e-3, absolute: 1e-4 },
        burn_backend::DType::BF16 => Tolerance { relative: 8e-3, absolute: 1e-4 },
        _ => SUMMED,
    }
}

impl Tolerance {
    pub fn holds(self, value: f64, truth: f64) -> bool {
        if truth.is_nan() || value.is_nan() {
            return truth.is_nan() && value.is_nan();
        }
        value == truth || (value - truth).abs() <= self.absolute + self.relative * truth.abs()
    }
}

/// Fails with the first difference.
pub fn assert_close(what: &str, value: &TensorData, truth: &TensorData, tolerance: Tolerance) {
    assert_eq!(value.shape, truth.shape, "{what}: the shape");
    let pairs = value.iter::<f64>().zip(truth.iter::<f64>());
    for (index, (value, truth)) in pairs.enumerate() {
        assert!(tolerance.holds(value, truth), "{what}: element {index} is {value}, the truth {truth}");
    }
}
