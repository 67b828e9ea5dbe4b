//! Elementwise ops: rows of the elementwise table that burn-flex lacks, clamps that propagate NaN,
//! and integer division by zero.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{Scalar, TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use burn_std::BoolDType;

use crate::kernels::ops::table::{Reference, Row};

/// Applies the reference implementation of an elementwise row with one float operand.
pub(crate) fn map(row: &Row, tensor: FlexTensor) -> FlexTensor {
    let Reference::Float1(reference) = row.reference else {
        panic!("{}: expected a row with one float operand", row.name)
    };
    let (dtype, data) = (tensor.dtype(), tensor.into_data());
    let values: Vec<f64> = data.iter::<f64>().map(reference).collect();
    FlexTensor::from_data(TensorData::new(values, data.shape).convert_dtype(dtype))
}

/// Applies the reference implementation of an elementwise row with two float operands that
/// broadcast.
pub(crate) fn map2(row: &Row, lhs: FlexTensor, rhs: FlexTensor) -> FlexTensor {
    let Reference::Float2(reference) = row.reference else {
        panic!("{}: expected a row with two float operands", row.name)
    };
    let shape = lhs
        .shape()
        .broadcast(&rhs.shape())
        .unwrap_or_else(|error| panic!("{}: {error:?}", row.name));
    let dtype = lhs.dtype();
    let expanded = |tensor| Flex::float_expand(tensor, shape.clone()).into_data();
    let (lhs, rhs) = (expanded(lhs), expanded(rhs));
    let values: Vec<f64> =
        lhs.iter::<f64>().zip(rhs.iter::<f64>()).map(|(a, b)| reference(a, b)).collect();
    FlexTensor::from_data(TensorData::new(values, shape).convert_dtype(dtype))
}

pub(crate) fn float_clamp(tensor: FlexTensor, min: Scalar, max: Scalar) -> FlexTensor {
    clamp(tensor, min.elem(), max.elem())
}

pub(crate) fn float_clamp_min(tensor: FlexTensor, min: Scalar) -> FlexTensor {
    clamp(tensor, min.elem(), f64::INFINITY)
}

pub(crate) fn float_clamp_max(tensor: FlexTensor, max: Scalar) -> FlexTensor {
    clamp(tensor, f64::NEG_INFINITY, max.elem())
}

/// Returns whether an element of a tensor is infinite or NaN, `[1]`.
pub(crate) fn any_not_finite(tensors: Vec<FlexTensor>) -> FlexTensor {
    let is_not_finite = |tensor: FlexTensor| {
        let bool_dtype = BoolDType::Native;
        let infinite = Flex::float_is_inf(tensor.clone(), bool_dtype);
        Flex::bool_any(Flex::bool_or(infinite, Flex::float_is_nan(tensor, bool_dtype)))
    };
    Flex::bool_any(Flex::bool_cat(tensors.into_iter().map(is_not_finite).collect(), 0))
}

pub(crate) fn relu(tensor: FlexTensor) -> FlexTensor {
    clamp(tensor, 0.0, f64::INFINITY)
}

/// Divides integers, rounding towards zero. The quotient is zero if the divisor is.
pub(crate) fn int_div(lhs: FlexTensor, rhs: FlexTensor) -> FlexTensor {
    let is_zero = equals_zero(rhs.clone());
    let quotient = Flex::int_div(lhs, Flex::int_mask_fill(rhs, is_zero.clone(), 1i64.into()));
    let is_zero = Flex::bool_expand(is_zero, quotient.shape());
    Flex::int_mask_fill(quotient, is_zero, 0i64.into())
}

/// Computes integer remainders with the sign of the divisor. The remainder is zero if the divisor
/// is.
pub(crate) fn int_remainder(lhs: FlexTensor, rhs: FlexTensor) -> FlexTensor {
    let is_zero = equals_zero(rhs.clone());
    // The remainder of a division by one is zero.
    Flex::int_remainder(lhs, Flex::int_mask_fill(rhs, is_zero, 1i64.into()))
}

pub(crate) fn int_div_scalar(lhs: FlexTensor, rhs: Scalar) -> FlexTensor {
    match rhs.elem::<i64>() {
        0 => Flex::int_mul_scalar(lhs, 0i64.into()),
        _ => Flex::int_div_scalar(lhs, rhs),
    }
}

pub(crate) fn int_remainder_scalar(lhs: FlexTensor, rhs: Scalar) -> FlexTensor {
    match rhs.elem::<i64>() {
        0 => Flex::int_mul_scalar(lhs, 0i64.into()),
        _ => Flex::int_remainder_scalar(lhs, rhs),
    }
}

fn equals_zero(tensor: FlexTensor) -> FlexTensor {
    Flex::int_equal_elem(tensor, 0i64.into(), BoolDType::Native)
}

/// Clamps the elements. The result is `max` if the limits cross, and NaN where an element or a
/// limit is NaN. The one-sided clamps of burn-flex return the limit for a NaN element; its clamp
/// panics if a limit is NaN or the limits cross.
fn clamp(tensor: FlexTensor, min: f64, max: f64) -> FlexTensor {
    if min.is_nan() || max.is_nan() {
        return Flex::float_mul_scalar(tensor, f64::NAN.into());
    }
    Flex::float_clamp(tensor, min.min(max).into(), max.into())
}
