//! What the contract's tables are read by.
//!
//! A row is a method's signature, in the kinds of `kinds.rs`, and the launch that computes it on a GPU:
//!
//! ```text
//! float_sum_dim(tensor: F, dim: Size) -> F = reduce::dim(Sum, tensor, dim);
//! ```
//!
//! A row without a launch always runs on the CPU twin's method of the same name. Where that one lacks or
//! loses something, the row says after an `else` what the twin computes instead. The rows of the
//! elementwise table (`kernels::table`) become methods here too, by their shape.

/// Makes trait methods from rows of a table of the contract.
macro_rules! methods {
    ($($name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(= $gpu:expr $(, else $twin:expr)?)?;)*) => {
        $(methods!(@one $name [$($arg: $kind),*] $ret $($gpu $(, else $twin)?)?);)*
    };
    (@one $name:ident [$($arg:ident: $kind:ident),*] $ret:ident $gpu:expr) => {
        methods!(@one $name [$($arg: $kind),*] $ret $gpu, else Flex::$name($($arg),*));
    };
    (@one $name:ident [$($arg:ident: $kind:ident),*] $ret:ident $gpu:expr, else $twin:expr) => {
        fn $name($($arg: $kind),*) -> $ret {
            let mut site = Site::new(stringify!($name));
            $($arg.show(&mut site);)*
            if site.takes_kernel() {
                $(let $arg = $arg.into_gpu(&site);)*
                site.computed($gpu)
            } else {
                site.falls_back();
                $(let $arg = $arg.into_twin(&site);)*
                Outcome::from_twin($twin, &site)
            }
        }
    };
    (@one $name:ident [$($arg:ident: $kind:ident),*] $ret:ident) => {
        fn $name($($arg: $kind),*) -> $ret {
            let mut site = Site::new(stringify!($name));
            $($arg.show(&mut site);)*
            site.falls_back();
            $(let $arg = $arg.into_twin(&site);)*
            Outcome::from_twin(Flex::$name($($arg),*), &site)
        }
    };
}

/// Makes trait methods from rows of the elementwise table.
macro_rules! elementwise_methods {
    ($kind:ident: $($shape:ident $name:ident $wgsl:literal $truth:ident $closure:expr;)*) => {
        $(elementwise_methods!(@$shape $kind $name);)*
    };
    (@unary $kind:ident $name:ident) => {
        methods!($name(tensor: $kind) -> $kind = elementwise::unary(&rows::$name, tensor););
    };
    (@query $kind:ident $name:ident) => {
        methods!($name(tensor: $kind, out_dtype: BoolType) -> B = {
            let _ = out_dtype;
            elementwise::query(&rows::$name, tensor)
        };);
    };
    (@binary $kind:ident $name:ident) => {
        methods!($name(lhs: $kind, rhs: $kind) -> $kind = elementwise::binary(&rows::$name, lhs, rhs););
    };
    (@scalar $kind:ident $name:ident) => {
        methods!($name(lhs: $kind, rhs: Number) -> $kind = {
            elementwise::scalar(&rows::$name, lhs, &[number::$kind(rhs)])
        };);
    };
    (@scalars $kind:ident $name:ident) => {
        methods!($name(tensor: $kind, first: Number, second: Number) -> $kind = {
            elementwise::scalar(&rows::$name, tensor, &[number::$kind(first), number::$kind(second)])
        };);
    };
    (@compare $kind:ident $name:ident) => {
        methods!($name(lhs: $kind, rhs: $kind, out_dtype: BoolType) -> B = {
            let _ = out_dtype;
            elementwise::compare(&rows::$name, lhs, rhs)
        };);
    };
    (@compare_scalar $kind:ident $name:ident) => {
        methods!($name(lhs: $kind, rhs: Number, out_dtype: BoolType) -> B = {
            let _ = out_dtype;
            elementwise::compare_scalar(&rows::$name, lhs, number::$kind(rhs))
        };);
    };
}

pub(crate) use {elementwise_methods, methods};

use crate::kernels::reduce::Reduction;
use crate::kernels::{copy, index, reduce};
use crate::tensor::{Result, SliceAxis, Tensor};

/// Scalars as kernels of a kind take them.
#[expect(non_snake_case, reason = "named after the kinds of the tables")]
pub(crate) mod number {
    use burn_backend::Scalar;

    use crate::kernels::elementwise::Number;

    pub fn F(scalar: Scalar) -> Number {
        Number::F32(scalar.elem())
    }

    /// Numbers past 32 bits become the nearest there is: comparisons and limits keep their meaning.
    pub fn I(scalar: Scalar) -> Number {
        let (low, high) = (i64::from(i32::MIN), i64::from(i32::MAX));
        Number::I32(match scalar {
            Scalar::Int(x) => x.clamp(low, high) as i32,
            Scalar::UInt(x) => x.min(high as u64) as i32,
            Scalar::Float(x) => x as i32,
            Scalar::Bool(x) => i32::from(x),
        })
    }

    pub fn B(scalar: Scalar) -> Number {
        Number::Bool(scalar.elem())
    }
}

/// A launch whose result's type was asked for: the site has already seen that kernels know it.
pub(crate) fn with<D, T>(_dtype: D, result: crate::tensor::Result<T>) -> crate::tensor::Result<T> {
    result
}

/// Exchanges the last two axes.
pub(crate) fn transpose(tensor: Tensor) -> Result<Tensor> {
    let rank = tensor.shape().len();
    copy::swap_dims(tensor, rank - 2, rank - 1)
}

/// The extreme of each line and where it is.
pub(crate) fn with_indices(
    kind: Reduction,
    tensor: Tensor,
    axis: usize,
) -> Result<(Tensor, Tensor)> {
    let indices = reduce::dim(kind, tensor.clone(), axis)?;
    Ok((index::gather(axis, tensor, indices.clone())?, indices))
}

/// Burn's slices as the layout's: a negative step starts at the end of its range.
fn slice_axes(tensor: &Tensor, slices: &[burn_std::Slice]) -> Vec<SliceAxis> {
    let axis = |(slice, &size): (&burn_std::Slice, &usize)| {
        let range = slice.to_range(size);
        let len = range
            .end
            .saturating_sub(range.start)
            .div_ceil(slice.step.unsigned_abs().max(1));
        let start = if slice.step < 0 {
            range.end.saturating_sub(1)
        } else {
            range.start
        };
        SliceAxis {
            start,
            step: slice.step,
            len,
        }
    };
    slices.iter().zip(tensor.shape()).map(axis).collect()
}

/// A part of a tensor.
pub(crate) fn slice(tensor: Tensor, slices: &[burn_std::Slice]) -> Result<Tensor> {
    let axes = slice_axes(&tensor, slices);
    copy::slice(tensor, &axes)
}

/// A tensor with a part of it replaced.
pub(crate) fn slice_assign(
    tensor: Tensor,
    slices: &[burn_std::Slice],
    value: Tensor,
) -> Result<Tensor> {
    let axes = slice_axes(&tensor, slices);
    copy::slice_assign(tensor, &axes, value)
}

/// What a trait implementation made from tables needs in scope.
pub(crate) mod prelude {
    pub(crate) use burn_backend::ops::{
        ActivationOps, BoolTensorOps, FloatTensorOps, IntTensorOps, ModuleOps, QTensorOps,
    };
    pub(crate) use burn_backend::{ExecutionError, TensorData};
    pub(crate) use burn_flex::Flex;

    pub(crate) use super::super::Wgsl;
    pub(crate) use super::super::data::{from_data, into_data, to_device};
    pub(crate) use super::super::kinds::*;
    pub(crate) use super::super::site::{Operand, Outcome, Site};
    pub(crate) use super::{
        elementwise_methods, methods, number, slice, slice_assign, transpose, with, with_indices,
    };
    pub(crate) use crate::device::WgslDevice;
    pub(crate) use crate::kernels::reduce::Reduction;
    pub(crate) use crate::kernels::table::rows;
    pub(crate) use crate::kernels::{
        conv, copy, create, cross, elementwise, grid_sample, index, interpolate, matmul, norm,
        pool, reduce, softmax,
    };
    pub(crate) use crate::tensor::DType;
}
