//! Tolerances for comparing floats with reference values.

use std::sync::LazyLock;

use burn_backend::TensorData;

/// The allowed difference from a reference value: `absolute + relative * |reference|`.
///
/// Kernels and burn-flex both compute in f32 but round in a different order. They differ by a few
/// units in the last place per operation, and by more in long sums of mixed signs.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    pub relative: f64,
    pub absolute: f64,
}

/// For an op that rounds a few times.
pub const CLOSE: Tolerance = Tolerance { relative: 2e-6, absolute: 1e-6 };
/// For a gradient compared with a central difference in f64. The error of the central difference is
/// about 1e-8; the rest is f32 rounding.
pub const FINITE_DIFFERENCE: Tolerance = Tolerance { relative: 1e-3, absolute: 3e-4 };
/// For a gradient in f16: the chain rule rounds a few intermediate results to 11 bits.
pub const CHAINED_F16: Tolerance = Tolerance { relative: 5e-3, absolute: 5e-3 };
/// For sums of f16 whose weights are rounded to 11 bits too, because matrix units multiply them.
/// The values are up to 4; most errors cancel out.
pub const WEIGHTED_F16: Tolerance = Tolerance { relative: 1e-3, absolute: 5e-4 };
/// For an op that sums.
pub const SUMMED: Tolerance = Tolerance { relative: 1e-4, absolute: 1e-4 };

/// Whether results are not compared. `BURN_WGSL_TEST_VALUES=ignore` is for drivers that run no
/// kernel: `cargo xtask vulkan` checks what the tests ask of them.
static VALUES_ARE_IGNORED: LazyLock<bool> = LazyLock::new(|| {
    std::env::var_os("BURN_WGSL_TEST_VALUES").is_some_and(|value| value == "ignore")
});

/// Returns the tolerance for results of type `dtype` against a reference computed in f32.
///
/// For 16-bit floats this is half a unit in the last place (10 mantissa bits in f16, 7 in bf16),
/// doubled because a result near a midpoint may round either way.
pub fn tolerance_of(dtype: burn_backend::DType) -> Tolerance {
    match dtype {
        burn_backend::DType::F16 => Tolerance { relative: 1e-3, absolute: 1e-4 },
        burn_backend::DType::BF16 => Tolerance { relative: 8e-3, absolute: 1e-4 },
        _ => SUMMED,
    }
}

impl Tolerance {
    /// Returns whether `value` is close enough to `expected`. NaN matches only NaN. Without
    /// comparisons, every value is.
    pub fn holds(self, value: f64, expected: f64) -> bool {
        if values_are_ignored() {
            return true;
        }
        if expected.is_nan() || value.is_nan() {
            return expected.is_nan() && value.is_nan();
        }
        value == expected
            || expected.is_finite()
                && (value - expected).abs() <= self.absolute + self.relative * expected.abs()
    }
}

/// Returns whether the results of tests are not compared with references.
pub fn values_are_ignored() -> bool {
    *VALUES_ARE_IGNORED
}

/// Panics at the first element outside the tolerance.
pub fn assert_close(label: &str, value: &TensorData, expected: &TensorData, tolerance: Tolerance) {
    if let Some(difference) = difference(value, expected, tolerance) {
        panic!("{label}: {difference}");
    }
}

/// Describes the first difference, if there is one.
pub fn difference(
    value: &TensorData,
    expected: &TensorData,
    tolerance: Tolerance,
) -> Option<String> {
    // Some ops have results whose shape depends on values.
    if value.shape != expected.shape && !values_are_ignored() {
        return Some(format!("the shape is {:?}, expected {:?}", value.shape, expected.shape));
    }
    let mut pairs = value.iter::<f64>().zip(expected.iter::<f64>()).enumerate();
    let (index, (value, expected)) =
        pairs.find(|(_, (value, expected))| !tolerance.holds(*value, *expected))?;
    Some(format!("element {index} is {value}, expected {expected}"))
}
