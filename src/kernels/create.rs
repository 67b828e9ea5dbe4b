//! New tensors from nothing but a scalar or an index.

use std::sync::Arc;

use super::cases::{Arg, Case, case};
use super::elementwise::{Map, Number};
use crate::runtime::{Runtime, Variant};
use crate::tensor::{DType, Result, Tensor};

/// A tensor whose every element is `value`, in a type that kernels compute in.
///
/// # Errors
///
/// When the memory is not there.
pub fn full(
    runtime: &Arc<Runtime>,
    shape: &[usize],
    value: Number,
    dtype: DType,
) -> Result<Tensor> {
    Map::new("s", dtype).with(&[value], dtype).fill(runtime, shape)
}

/// The integers from `start` in steps of `step`, `len` of them.
///
/// # Errors
///
/// When the memory is not there.
pub fn arange(
    runtime: &Arc<Runtime>,
    start: i64,
    step: usize,
    len: usize,
    dtype: DType,
) -> Result<Tensor> {
    let scalars = [Number::Int(start.into()), Number::Int(step as i128)];
    counting(dtype, scalars).fill(runtime, &[len])
}

pub(crate) fn counting(dtype: DType, scalars: [Number; 2]) -> Map {
    Map::new("s + O(i) * t", dtype).with(&scalars, dtype)
}

/// Fills are elementwise kernels.
pub fn variants() -> Vec<Variant> {
    Vec::new()
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("float_empty", &[Arg::Sizes(&[3, 5]), Arg::FloatType]),
    case("int_empty", &[Arg::Sizes(&[3, 5]), Arg::IntType]),
    case("bool_empty", &[Arg::Sizes(&[3, 5]), Arg::BoolType]),
    case("float_zeros", &[Arg::Sizes(&[3, 5]), Arg::FloatType]),
    case("float_ones", &[Arg::Sizes(&[1023]), Arg::FloatType]),
    case("float_full", &[Arg::Sizes(&[2, 0, 3]), Arg::Float(2.5), Arg::FloatType]),
    case("float_full", &[Arg::Sizes(&[2, 7]), Arg::Float(-2.5), Arg::FloatType]),
    case("int_zeros", &[Arg::Sizes(&[3, 5]), Arg::IntType]),
    case("int_ones", &[Arg::Sizes(&[3, 5]), Arg::IntType]),
    case("int_full", &[Arg::Sizes(&[3, 5]), Arg::Int(-7), Arg::IntType]),
    case("int_arange", &[Arg::Int(-3), Arg::Int(8), Arg::IntType]),
    case("int_arange_step", &[Arg::Int(2), Arg::Int(19), Arg::Int(4), Arg::IntType]),
    case("bool_zeros", &[Arg::Sizes(&[3, 5]), Arg::BoolType]),
    case("bool_ones", &[Arg::Sizes(&[3, 5]), Arg::BoolType]),
];
