//! New tensors that elementwise kernels compute from scalars and the element's index.

use std::sync::Arc;

use half::{bf16, f16};

use crate::kernels::copy;
use crate::kernels::fusion::pending;
use crate::kernels::fusion::switch::is_enabled;
use crate::kernels::launch::parts;
use crate::kernels::ops::cases::{Arg, Case, cases};
use crate::kernels::ops::map::{CONSTANT, Map, ScalarValue};
use crate::runtime::{Runtime, Variant};
use crate::tensor::{DType, Layout, Result, Tensor};

/// Returns a tensor of `shape`, of a compute type or of 16-bit floats, filled with `value`.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn full(
    runtime: &Arc<Runtime>,
    shape: &[usize],
    value: ScalarValue,
    dtype: DType,
) -> Result<Tensor> {
    if !dtype.is_half() {
        return constant(value, dtype).fill(runtime, shape);
    }
    let oversized = parts::exceed_binding(runtime, shape, dtype);
    if is_enabled() && !shape.contains(&0) && !oversized {
        return pending::defer_fill(&constant(value, dtype), runtime, shape);
    }
    // A word holds two elements.
    let bits = u32::from(half_bits(value, dtype));
    let out = Tensor::empty(runtime, shape, dtype)?;
    let words = Layout::contiguous(&[out.len().div_ceil(2)]);
    let word = ScalarValue::Int((bits << 16 | bits).into());
    constant(word, DType::U32).write_to(&[], &out.view_as(words, DType::U32))?;
    Ok(out)
}

/// Returns the bits of a value as a 16-bit float.
fn half_bits(value: ScalarValue, dtype: DType) -> u16 {
    let value = f32::from_bits(value.bits(DType::F32) as u32);
    match dtype {
        DType::BF16 => bf16::from_f32(value).to_bits(),
        _ => f16::from_f32(value).to_bits(),
    }
}

/// Returns the elementwise computation of a constant.
pub(super) fn constant(value: ScalarValue, dtype: DType) -> Map {
    Map::new(CONSTANT, dtype).with(&[value], dtype)
}

/// Returns a tensor of `len` integers: `start`, `start + step` and so on.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn arange(
    runtime: &Arc<Runtime>,
    start: i64,
    step: usize,
    len: usize,
    dtype: DType,
) -> Result<Tensor> {
    let part = |first: usize, len: usize| {
        let start = i128::from(start) + first as i128 * step as i128;
        let scalars = [ScalarValue::Int(start), ScalarValue::Int(step as i128)];
        ramp(dtype, scalars).fill(runtime, &[len])
    };
    match parts::exceed_binding(runtime, &[len], dtype) {
        true => copy::concatenated(runtime, &[len], dtype, part),
        false => part(0, len),
    }
}

/// Returns the elementwise computation of the scalar `s` plus the element's index times `t`.
fn ramp(dtype: DType, scalars: [ScalarValue; 2]) -> Map {
    Map::new("s + O(i) * t", dtype).with(&scalars, dtype)
}

/// Returns every variant that these functions can request.
pub fn variants() -> Vec<Variant> {
    let zero = ScalarValue::Int(0);
    let fills = DType::COMPUTE_TYPES.map(|dtype| constant(zero, dtype));
    let ramps = DType::INTEGERS.map(|dtype| ramp(dtype, [zero; 2]));
    fills.into_iter().chain(ramps).flat_map(|map| map.variants(&[])).collect()
}

/// The cases that these functions must pass.
pub const CASES: &[Case] = cases! {
    float_empty(Arg::Sizes(&[3, 5]), Arg::FloatType);
    int_empty(Arg::Sizes(&[3, 5]), Arg::IntType);
    bool_empty(Arg::Sizes(&[3, 5]), Arg::BoolType);
    float_zeros(Arg::Sizes(&[3, 5]), Arg::FloatType);
    float_ones(Arg::Sizes(&[1023]), Arg::FloatType);
    float_full(Arg::Sizes(&[2, 0, 3]), Arg::Float(2.5), Arg::FloatType);
    float_full(Arg::Sizes(&[2, 7]), Arg::Float(-2.5), Arg::FloatType);
    int_zeros(Arg::Sizes(&[3, 5]), Arg::IntType);
    int_ones(Arg::Sizes(&[3, 5]), Arg::IntType);
    int_full(Arg::Sizes(&[3, 5]), Arg::Int(-7), Arg::IntType);
    int_arange(Arg::Int(-3), 8, Arg::IntType);
    int_arange_step(2, 19, 4, Arg::IntType);
    bool_zeros(Arg::Sizes(&[3, 5]), Arg::BoolType);
    bool_ones(Arg::Sizes(&[3, 5]), Arg::BoolType);
};
