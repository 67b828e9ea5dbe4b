//! Ops on special floats: NaN, infinities, signed zeros, subnormal and huge numbers.

use burn_backend::ops::{ActivationOps, FloatTensorOps};
use burn_backend::tensor::{BasicOps, Float, FloatMathOps, Numeric, Ordered};
use burn_backend::{Scalar, TensorMetadata, TensorPrimitive, get_device_settings};
use burn_wgsl::{Wgsl, WgslDevice, WgslTensor};

use super::program::{self, Chain, Choices, Outcome, Program, op_enum};

use crate::common::Tolerance;

op_enum! {
    /// Ops on special floats.
    pub enum Special {
        Add, Sub, Mul, Neg, Abs, Sign, Floor, Ceil, Round, Trunc, Relu, Clamp, ClampMin, ClampMax,
        FillLarger, FillUnequal, FillNan, FillInfinite,
        // Devices round the following ops differently. They end a chain.
        Div, Recip, Sqrt, Exp, Log, Log1p, Tanh, Sigmoid,
    }
}

/// Runs a program. `flush` replaces subnormal numbers with zero after every step, as a GPU may.
pub fn run(program: &Program<Special>, device: &WgslDevice, flush: bool) -> Vec<Outcome> {
    if !flush {
        return program::run::<Float, _>(program, device, element, step);
    }
    let flushed_element = |random| {
        let x = element(random);
        if x.abs() < f64::from(f32::MIN_POSITIVE) { 0.0f64.copysign(x) } else { x }
    };
    program::run::<Float, _>(program, device, flushed_element, |chain, op, x, choices| {
        let x = step(chain, op, x, choices);
        let min_normal = Scalar::Float(f64::from(f32::MIN_POSITIVE));
        let subnormal = Float::lower_elem(Float::abs(x.clone()), min_normal);
        Float::mask_where(x.clone(), subnormal, Float::mul_scalar(x, Scalar::Float(0.0)))
    })
}

/// Returns an element from random bits. Half of the elements are special values.
fn element(random: u64) -> f64 {
    let special = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        -f32::MIN_POSITIVE,
        1e-40,
        -1e-45,
        1.0,
        -1.0,
        0.5,
        -2.5,
        8_388_609.0,
        -16_777_216.0,
    ];
    let bits = random >> 8;
    f64::from(match random % 4 {
        0 | 1 => special[bits as usize % special.len()],
        2 => f32::from_bits(bits as u32),
        _ => (bits % 4001) as f32 / 1000.0 - 2.0,
    })
}

/// Applies an op. After the first op with device-dependent rounding, returns `x` unchanged.
fn step(
    chain: &mut Chain,
    op: Special,
    x: TensorPrimitive<Wgsl>,
    choices: &mut Choices,
) -> TensorPrimitive<Wgsl> {
    if chain.tolerance.relative > 0.0 {
        return x;
    }
    let bool_dtype = get_device_settings::<Wgsl>(chain.device).bool_dtype;
    let (low, high) = (Scalar::Float(-1.5), Scalar::Float(2.25));
    let map = |op: fn(WgslTensor) -> WgslTensor, x: TensorPrimitive<Wgsl>| {
        TensorPrimitive::Float(op(x.tensor()))
    };
    let rounding_differs = matches!(
        op,
        Special::Div
            | Special::Recip
            | Special::Sqrt
            | Special::Exp
            | Special::Log
            | Special::Log1p
            | Special::Tanh
            | Special::Sigmoid
    );
    if rounding_differs {
        chain.tolerance = Tolerance { relative: 1e-5, absolute: 1e-6 };
    }
    // For NaN, relu, clamp_min and clamp_max return the bound in burn-flex, but NaN in the kernels.
    let replace_nan = |x: TensorPrimitive<Wgsl>| {
        let mask = Wgsl::float_is_nan(x.clone().tensor(), bool_dtype);
        Float::mask_fill(x, mask, low)
    };
    // The larger of two zeros has either sign, and burn-flex rounds -0.5 to a positive zero.
    let positive_zeros = |x: TensorPrimitive<Wgsl>| Float::add_scalar(x, Scalar::Float(0.0));
    let shape = x.shape().to_vec();
    let mut other = || chain.broadcast_operand::<Float>(&shape, choices);
    match op {
        Special::Add => Float::add(x, other()),
        Special::Sub => Float::sub(x, other()),
        Special::Mul => Float::mul(x, other()),
        Special::Div => Float::div(x, other()),
        Special::Neg => Float::neg(x),
        Special::Abs => Float::abs(x),
        Special::Sign => Float::sign(x),
        Special::Floor => map(Wgsl::float_floor, x),
        Special::Ceil => map(Wgsl::float_ceil, x),
        Special::Round => positive_zeros(map(Wgsl::float_round, x)),
        Special::Trunc => map(Wgsl::float_trunc, x),
        Special::Relu => positive_zeros(map(Wgsl::relu, replace_nan(x))),
        Special::Clamp => Float::clamp(x, low, high),
        Special::ClampMin => Float::clamp_min(replace_nan(x), low),
        Special::ClampMax => Float::clamp_max(replace_nan(x), high),
        Special::FillLarger => {
            let mask = Float::greater(x.clone(), other());
            // The comparison broadcasts, but the mask must have the shape of `x`.
            if mask.shape() == x.shape() { Float::mask_fill(x, mask, low) } else { x }
        }
        Special::FillUnequal => {
            let mask = Float::not_equal(x.clone(), x.clone());
            Float::mask_fill(x, mask, high)
        }
        Special::FillNan => replace_nan(x),
        Special::FillInfinite => {
            let mask = Wgsl::float_is_inf(x.clone().tensor(), bool_dtype);
            Float::mask_fill(x, mask, high)
        }
        Special::Recip => map(Wgsl::float_recip, x),
        Special::Sqrt => Float::sqrt(x),
        Special::Exp => Float::exp(x),
        Special::Log => Float::log(x),
        Special::Log1p => Float::log1p(x),
        Special::Tanh => Float::tanh(x),
        Special::Sigmoid => map(Wgsl::sigmoid, x),
    }
}
