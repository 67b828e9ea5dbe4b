//! Special floats: NaN, infinities, signed zeros, subnormal and huge numbers.

use burn_backend::ops::{ActivationOps, FloatTensorOps};
use burn_backend::tensor::{BasicOps, Float, FloatMathOps, Numeric, Ordered};
use burn_backend::{Scalar, TensorMetadata, TensorPrimitive, get_device_settings};
use burn_wgsl::{Wgsl, WgslDevice, WgslTensor};

use crate::common::Tolerance;
use crate::program::{self, Chain, Choices, Outcome, Program};

#[derive(Debug, Clone, Copy)]
pub enum Special {
    Add,
    Sub,
    Mul,
    Neg,
    Abs,
    Sign,
    Floor,
    Ceil,
    Round,
    Trunc,
    Relu,
    Clamp,
    ClampMin,
    ClampMax,
    FillLarger,
    FillUnequal,
    FillNan,
    FillInfinite,
    // What devices round each in their own way ends a chain.
    Div,
    Recip,
    Sqrt,
    Exp,
    Log,
    Log1p,
    Tanh,
    Sigmoid,
}

pub static OPS: &[Special] = {
    use Special::*;
    &[
        Add,
        Sub,
        Mul,
        Neg,
        Abs,
        Sign,
        Floor,
        Ceil,
        Round,
        Trunc,
        Relu,
        Clamp,
        ClampMin,
        ClampMax,
        FillLarger,
        FillUnequal,
        FillNan,
        FillInfinite,
        Div,
        Recip,
        Sqrt,
        Exp,
        Log,
        Log1p,
        Tanh,
        Sigmoid,
    ]
};

/// Runs a program; `flush` takes subnormal numbers for zero, as a GPU may.
pub fn run(program: &Program<Special>, device: &WgslDevice, flush: bool) -> Vec<Outcome> {
    if !flush {
        return program::run::<Float, _>(program, device, content, step);
    }
    let flushed = |random| {
        let x = content(random);
        if x.abs() < f64::from(f32::MIN_POSITIVE) { 0.0f64.copysign(x) } else { x }
    };
    program::run::<Float, _>(program, device, flushed, |chain, op, x, choices| {
        let x = step(chain, op, x, choices);
        let least = Scalar::Float(f64::from(f32::MIN_POSITIVE));
        let tiny = Float::lower_elem(Float::abs(x.clone()), least);
        Float::mask_where(x.clone(), tiny, Float::mul_scalar(x, Scalar::Float(0.0)))
    })
}

/// Every other one is special.
fn content(random: u64) -> f64 {
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
    let number = random >> 8;
    f64::from(match random % 4 {
        0 | 1 => special[number as usize % special.len()],
        // Any bits.
        2 => f32::from_bits(number as u32),
        _ => (number % 4001) as f32 / 1000.0 - 2.0,
    })
}

fn step(
    chain: &mut Chain,
    op: Special,
    x: TensorPrimitive<Wgsl>,
    choices: &mut Choices,
) -> TensorPrimitive<Wgsl> {
    if chain.tolerance.relative > 0.0 {
        return x;
    }
    let bools = get_device_settings::<Wgsl>(chain.device).bool_dtype;
    let (low, high) = (Scalar::Float(-1.5), Scalar::Float(2.25));
    let map = |op: fn(WgslTensor) -> WgslTensor, x: TensorPrimitive<Wgsl>| {
        TensorPrimitive::Float(op(x.tensor()))
    };
    let rounded = matches!(
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
    if rounded {
        chain.tolerance = Tolerance { relative: 1e-5, absolute: 1e-6 };
    }
    // burn-flex takes NaN for the bound here, kernels let it through.
    let number = |x: TensorPrimitive<Wgsl>| {
        let mask = Wgsl::float_is_nan(x.clone().tensor(), bools);
        Float::mask_fill(x, mask, low)
    };
    let shape = x.shape().to_vec();
    let mut other = || chain.partner::<Float>(&shape, choices);
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
        Special::Round => map(Wgsl::float_round, x),
        Special::Trunc => map(Wgsl::float_trunc, x),
        Special::Relu => map(Wgsl::relu, number(x)),
        Special::Clamp => Float::clamp(x, low, high),
        Special::ClampMin => Float::clamp_min(number(x), low),
        Special::ClampMax => Float::clamp_max(number(x), high),
        Special::FillLarger => {
            let mask = Float::greater(x.clone(), other());
            // The comparison broadcasts; the mask must have the value's shape.
            if mask.shape() == x.shape() { Float::mask_fill(x, mask, low) } else { x }
        }
        Special::FillUnequal => {
            let mask = Float::not_equal(x.clone(), x.clone());
            Float::mask_fill(x, mask, high)
        }
        Special::FillNan => number(x),
        Special::FillInfinite => {
            let mask = Wgsl::float_is_inf(x.clone().tensor(), bools);
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
