//! New tensors from nothing but a scalar or an index.

use std::sync::Arc;

use super::elementwise::{Map, Number};
use crate::runtime::Runtime;
use crate::tensor::{DType, Result, Tensor};

/// The expression of [`arange`]: start + index * step.
pub(crate) const ARANGE: &str = "s + i32(i) * t";

/// A tensor whose every element is `value`.
///
/// # Errors
///
/// When the memory is not there.
pub fn full(runtime: &Arc<Runtime>, shape: &[usize], value: Number) -> Result<Tensor> {
    Map::new("s", value.dtype())
        .with(value)
        .fill(runtime, shape)
}

/// The integers from `start` in steps of `step`, `len` of them.
///
/// # Errors
///
/// When the memory is not there.
pub fn arange(runtime: &Arc<Runtime>, start: i32, step: i32, len: usize) -> Result<Tensor> {
    Map::new(ARANGE, DType::I32)
        .with(Number::I32(start))
        .with(Number::I32(step))
        .fill(runtime, &[len])
}
