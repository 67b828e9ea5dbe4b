//! `fmod`, remainders with the sign of the dividend, which Burn 0.21 does not have.

use burn_backend::Scalar;
use burn_backend_021::ops::FloatTensorOps;
use burn_backend_021::{
    BoolDType, DType, Scalar as Scalar021, Shape, TensorData, TensorMetadata, read_sync,
};
use burn_wgsl::{Wgsl, WgslDevice, WgslTensor};

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
    if !has_exact_kernel(&lhs) {
        return on_host(lhs, rhs);
    }
    let magnitudes = [&lhs, &rhs].map(|operand| Wgsl::float_abs(operand.clone()));
    let [dividends, divisors] = magnitudes;
    with_sign(Wgsl::float_remainder(dividends, divisors), &lhs)
}

/// As [`of_tensors`], for a number.
pub(crate) fn of_scalar(lhs: WgslTensor, rhs: Scalar) -> WgslTensor {
    if !has_exact_kernel(&lhs) {
        let (device, dtype) = (Wgsl::float_device(&lhs), lhs.dtype().into());
        let shape = Shape::from(vec![1; lhs.rank()]);
        return on_host(lhs, Wgsl::float_full(shape, rhs.converted(), &device, dtype));
    }
    let dividends = Wgsl::float_abs(lhs.clone());
    with_sign(Wgsl::float_remainder_scalar(dividends, magnitude(rhs).converted()), &lhs)
}

/// Returns whether a kernel computes remainders of the tensor: exactly, as Burn 0.21's CPU backend does not.
fn has_exact_kernel(tensor: &WgslTensor) -> bool {
    Wgsl::float_device(tensor) != WgslDevice::Cpu && tensor.dtype() != DType::F64
}

/// Computes the remainders of a tensor that is in the host's memory. In f64, those of narrower types are exact.
fn on_host(lhs: WgslTensor, rhs: WgslTensor) -> WgslTensor {
    let (device, dtype) = (Wgsl::float_device(&lhs), lhs.dtype());
    let shapes = [lhs.shape(), rhs.shape()];
    let sizes = shapes[0].iter().zip(shapes[1].iter()).map(|(a, b)| match (*a, *b) {
        (1, size) => size,
        (size, _) => size,
    });
    let shape = Shape::from(sizes.collect::<Vec<_>>());
    let [lhs, rhs] = [lhs, rhs].map(|operand| {
        let read = Wgsl::float_into_data(Wgsl::float_expand(operand, shape.clone()));
        read_sync(read).unwrap_or_else(|error| panic!("float_fmod: {error}"))
    });
    let remainders = lhs.iter::<f64>().zip(rhs.iter::<f64>()).map(|(a, b)| a % b);
    let remainders = TensorData::new(remainders.collect::<Vec<_>>(), shape);
    Wgsl::float_from_data(remainders.convert_dtype(dtype), &device)
}

/// Returns the remainders of absolute values with the signs of the dividends, which broadcast to their shape.
fn with_sign(remainders: WgslTensor, dividends: &WgslTensor) -> WgslTensor {
    let dividends = Wgsl::float_expand(dividends.clone(), remainders.shape());
    let are_negative = Wgsl::float_lower_elem(dividends, Scalar021::Float(0.0), BoolDType::Native);
    let negated = Wgsl::float_neg(remainders.clone());
    Wgsl::float_mask_where(remainders, are_negative, negated)
}
