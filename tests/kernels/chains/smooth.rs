//! Functions of bounded slope, with an error bound that is carried from step to step.
//!
//! A function multiplies the error so far by at most its slope and adds its own rounding error.
//! Values stay within [-4, 4].

use burn_backend::ops::{ActivationOps, FloatTensorOps};
use burn_backend::tensor::{Float, FloatMathOps, Numeric, Ordered};
use burn_backend::{Scalar, TensorMetadata, TensorPrimitive};
use burn_wgsl::{Wgsl, WgslTensor};

use super::program::{Chain, Choices, MAX_ELEMENTS, num_elements, op_enum};

op_enum! {
    /// Functions of bounded slope.
    pub enum Smooth {
        Add, Mul, Div, Exp, Log, Sqrt, Recip, Power, Sin, Cos, Tanh, Atan, Erf, Gelu, Sigmoid,
        LogSigmoid, Softmax, LogSoftmax, MeanDim, SumDim, MaxDim, Matmul,
    }
}

/// Returns an element in [-2, 2) from random bits.
pub fn element(random: u64) -> f64 {
    (random >> 40) as f64 / f64::from(1 << 22) - 2.0
}

/// Applies an op, or returns `x` unchanged if the op does not apply or the error bound would exceed
/// 1e-3.
pub fn step(
    chain: &mut Chain,
    op: Smooth,
    x: TensorPrimitive<Wgsl>,
    choices: &mut Choices,
) -> TensorPrimitive<Wgsl> {
    let shape = x.shape().to_vec();
    let rank = shape.len();
    let axis = choices.below(rank);
    let (length, width) = (shape[axis] as f64, shape[rank - 1] as f64);
    // The largest slope, and the largest intermediate value that is rounded.
    let (slope, largest) = match op {
        Smooth::Add => (1.0, 6.0),
        Smooth::Mul => (2.0, 8.0),
        Smooth::Div => (2.0, 8.0),
        Smooth::Exp => (2.8, 2.8),
        Smooth::Log => (2.0, 2.0),
        Smooth::Sqrt => (1.0, 3.0),
        Smooth::Recip => (4.0, 2.0),
        Smooth::Power => (3.2, 10.0),
        Smooth::Gelu => (1.13, 4.0),
        Smooth::LogSoftmax => (2.0, 8.0),
        Smooth::SumDim => (length, 4.0 * length),
        Smooth::MeanDim => (1.0, 4.0 * length),
        Smooth::Matmul => (2.0 * width, 8.0 * width),
        _ => (1.2, 4.0),
    };
    let error = slope * chain.tolerance.absolute + 2e-6 * largest;
    let applies = match op {
        Smooth::MaxDim | Smooth::MeanDim | Smooth::Softmax | Smooth::LogSoftmax => length > 0.0,
        Smooth::Matmul => rank > 1 && num_elements(&shape[..rank - 1]) * 6 <= MAX_ELEMENTS,
        _ => true,
    };
    if !applies || error > 1e-3 {
        return x;
    }
    chain.tolerance.absolute = error;

    let map = |op: fn(WgslTensor) -> WgslTensor, x: TensorPrimitive<Wgsl>| {
        TensorPrimitive::Float(op(x.tensor()))
    };
    let half = Scalar::Float(0.5);
    let away_from_zero = |x| Float::add_scalar(Float::abs(x), half);
    let mut other = || chain.broadcast_operand::<Float>(&shape, choices);
    let value = match op {
        Smooth::Add => Float::add(x, other()),
        Smooth::Mul => Float::mul(x, other()),
        Smooth::Div => Float::div(x, away_from_zero(other())),
        Smooth::Exp => Float::exp(Float::clamp_max(x, Scalar::Float(1.0))),
        Smooth::Log => Float::log(away_from_zero(x)),
        Smooth::Sqrt => Float::sqrt(away_from_zero(x)),
        Smooth::Recip => map(Wgsl::float_recip, away_from_zero(x)),
        Smooth::Power => {
            let base = away_from_zero(x).tensor();
            TensorPrimitive::Float(Wgsl::float_powf_scalar(base, Scalar::Float(1.5)))
        }
        Smooth::Sin => Float::sin(x),
        Smooth::Cos => Float::cos(x),
        Smooth::Tanh => Float::tanh(x),
        Smooth::Atan => Float::atan(x),
        Smooth::Erf => map(Wgsl::float_erf, x),
        Smooth::Gelu => map(Wgsl::gelu, x),
        Smooth::Sigmoid => map(Wgsl::sigmoid, x),
        Smooth::LogSigmoid => map(Wgsl::log_sigmoid, x),
        Smooth::Softmax => TensorPrimitive::Float(Wgsl::softmax(x.tensor(), axis)),
        Smooth::LogSoftmax => TensorPrimitive::Float(Wgsl::log_softmax(x.tensor(), axis)),
        Smooth::MeanDim => Float::mean_dim(x, axis),
        Smooth::SumDim => Float::sum_dim(x, axis),
        Smooth::MaxDim => Float::max_dim(x, axis),
        Smooth::Matmul => {
            let mut other = shape.clone();
            other[rank - 2] = shape[rank - 1];
            // Rows of the result and of the other operand.
            let rows = num_elements(&shape[..rank - 1]).max(num_elements(&other[..rank - 1]));
            other[rank - 1] = choices.size_up_to(MAX_ELEMENTS / rows.max(1)).max(1);
            Float::matmul(x, chain.random_tensor::<Float>(&other, choices))
        }
    };
    Float::clamp(value, Scalar::Float(-4.0), Scalar::Float(4.0))
}
