//! How close results must be: the one place for it.

use burn_backend::TensorData;

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
    if let Some(difference) = difference(value, truth, tolerance) {
        panic!("{what}: {difference}");
    }
}

/// The first difference, in words.
pub fn difference(value: &TensorData, truth: &TensorData, tolerance: Tolerance) -> Option<String> {
    if value.shape != truth.shape {
        return Some(format!("the shape is {:?}, the truth's {:?}", value.shape, truth.shape));
    }
    let mut pairs = value.iter::<f64>().zip(truth.iter::<f64>()).enumerate();
    let (index, (value, truth)) =
        pairs.find(|(_, (value, truth))| !tolerance.holds(*value, *truth))?;
    Some(format!("element {index} is {value}, the truth {truth}"))
}
