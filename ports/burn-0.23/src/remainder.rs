//! Remainders with the sign of the dividend, which Burn 0.21 does not have.

use burn_backend::Scalar;
use burn_backend_021::ops::FloatTensorOps;
use burn_backend_021::{BoolDType, Scalar as Scalar021, TensorMetadata};
use burn_wgsl::{Wgsl, WgslTensor};

use crate::contract::Convert;

/// Returns the absolute value of a number.
fn magnitude(number: Scalar) -> Scalar {
    match number {
        Scalar::Float(number) => Scalar::Float(number.abs()),
        Scalar::Int(number) => Scalar::UInt(number.unsigned_abs()),
        number => number,
    }
}

/// Returns the remainders of `lhs` divided by `rhs`, with the signs of `lhs`.
pub(crate) fn of_tensors(lhs: WgslTensor, rhs: WgslTensor) -> WgslTensor {
    let magnitudes = [&lhs, &rhs].map(|operand| Wgsl::float_abs(operand.clone()));
    let [dividends, divisors] = magnitudes;
    let remainders = with_sign(Wgsl::float_remainder(dividends, divisors), &lhs);
    // Burn's CPU backend has no remainders of infinity.
    let rhs = Wgsl::float_expand(rhs, remainders.shape());
    let are_infinite = Wgsl::float_is_inf(rhs, BoolDType::Native);
    let dividends = unchanged(Wgsl::float_expand(lhs, remainders.shape()));
    Wgsl::float_mask_where(remainders, are_infinite, dividends)
}

/// As [`of_tensors`], for a number.
pub(crate) fn of_scalar(lhs: WgslTensor, rhs: Scalar) -> WgslTensor {
    if matches!(rhs, Scalar::Float(number) if number.is_infinite()) {
        return unchanged(lhs);
    }
    let dividends = Wgsl::float_abs(lhs.clone());
    with_sign(Wgsl::float_remainder_scalar(dividends, magnitude(rhs).converted()), &lhs)
}

/// Returns the remainders of a division by infinity: those of infinities are NaN.
fn unchanged(dividends: WgslTensor) -> WgslTensor {
    let are_infinite = Wgsl::float_is_inf(dividends.clone(), BoolDType::Native);
    Wgsl::float_mask_fill(dividends, are_infinite, Scalar021::Float(f64::NAN))
}

/// Returns the remainders of absolute values with the signs of the dividends, which broadcast to their shape.
fn with_sign(remainders: WgslTensor, dividends: &WgslTensor) -> WgslTensor {
    let dividends = Wgsl::float_expand(dividends.clone(), remainders.shape());
    let are_negative = Wgsl::float_lower_elem(dividends, Scalar021::Float(0.0), BoolDType::Native);
    let negated = Wgsl::float_neg(remainders.clone());
    Wgsl::float_mask_where(remainders, are_negative, negated)
}
