//! What the contract's tables are read by.
//!
//! A row is a method's signature, in the kinds of `kinds.rs`, and the launch that computes it on a GPU:
//!
//! ```text
//! float_sum_dim(tensor: F, dim: Size) -> F = reduce::dim(Sum, tensor, dim);
//! ```
//!
//! Kernels compute in f32, in integers of 32 and 64 bits, and in truth values. Operands of other types are converted
//! before the launch, and the result back. A row `-> I as index` gives indices, whose type is not the operands'; a row
//! `-> B as compared` has its scalar rounded to the operands' type; the launch of a row `-> F as stored` takes every type as it is,
//! that of a row `-> F as halves` floats of 16 bits too, and gives f32.
//!
//! After `else` a row may say how the CPU computes it, where burn-flex's method of the same name is not it.
//! A row without a launch always runs on the CPU twin's method of the same name. The rows of the
//! elementwise table (`kernels::table`) become methods here too, by their shape.

/// Makes trait methods from rows of a table of the contract.
macro_rules! methods {
    ($($name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(as $types:ident)? $(= $gpu:expr $(, else $twin:expr)?)?;)*) => {
        $(methods!(@one $name [$($arg: $kind),*] $ret [$($types)?] $($gpu, [$($twin)?])?);)*
    };
    (@one $name:ident [$($arg:ident: $kind:ident),*] $ret:ident [$($types:ident)?] $gpu:expr, [$($twin:expr)?]) => {
        fn $name($($arg: $kind),*) -> $ret {
            run!($name [$($arg: $kind)*] [$($types)?] $gpu, else methods!(@twin $name [$($arg)*] $($twin)?))
        }
    };
    (@one $name:ident [$($arg:ident: $kind:ident),*] $ret:ident []) => {
        fn $name($($arg: $kind),*) -> $ret {
            run!($name [$($arg: $kind)*] else Flex::$name($($arg),*))
        }
    };
    (@twin $name:ident [$($arg:ident)*] $twin:expr) => {
        $twin
    };
    (@twin $name:ident [$($arg:ident)*]) => {
        Flex::$name($($arg),*)
    };
}

/// Runs an op where its operands are: a launch if there is one for them, else the twin.
macro_rules! run {
    ($name:ident [$($arg:ident: $kind:ident)*] [$($types:ident)?] $gpu:expr, else $twin:expr) => {{
        let mut context = OpContext::new(stringify!($name))$(.$types())?;
        $(run!(@show context $arg $kind);)*
        $(run!(@axis context $arg $arg);)*
        if context.has_kernel() {
            $(let $arg = $arg.into_gpu(&context);)*
            context.computed($gpu)
        } else if OpContext::HAS_CPU {
            context.record_fallback();
            $(let $arg = $arg.into_cpu(&context);)*
            OpOutput::from_cpu($twin, &context)
        } else {
            context.no_cpu_backend()
        }
    }};
    ($name:ident [$($arg:ident: $kind:ident)*] else $twin:expr) => {{
        let mut context = OpContext::new(stringify!($name));
        $(run!(@show context $arg $kind);)*
        $(run!(@axis context $arg $arg);)*
        if OpContext::HAS_CPU {
            context.record_fallback();
            $(let $arg = $arg.into_cpu(&context);)*
            OpOutput::from_cpu($twin, &context)
        } else {
            context.no_cpu_backend()
        }
    }};
    (@show $context:ident $arg:ident Index) => {
        $context.register_indices(&$arg);
    };
    (@show $context:ident $arg:ident $kind:ident) => {
        $arg.register(&mut $context);
    };
    // What a row calls so is an axis of its tensor.
    (@axis $context:ident $arg:ident dim) => {
        $context.has_axis($arg);
    };
    (@axis $context:ident $arg:ident dim1) => {
        $context.has_axis($arg);
    };
    (@axis $context:ident $arg:ident dim2) => {
        $context.has_axis($arg);
    };
    (@axis $context:ident $arg:ident $other:ident) => {};
}

/// Makes trait methods from rows of the elementwise table.
macro_rules! elementwise_methods {
    ($kind:ident: $($form:ident $name:ident $wgsl:literal $truth:ident $closure:expr;)*) => {
        $(elementwise_methods!(@$form $kind $name);)*
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
    // Of floats: burn-flex takes a limit where the element is NaN.
    (@least F $name:ident) => {
        methods!($name(tensor: F, least: Number) -> F = elementwise::limit(&rows::$name, tensor, &[number::F(least)]),
            else cpu::clamp(tensor, least.elem(), f64::INFINITY););
    };
    (@most F $name:ident) => {
        methods!($name(tensor: F, most: Number) -> F = elementwise::limit(&rows::$name, tensor, &[number::F(most)]),
            else cpu::clamp(tensor, f64::NEG_INFINITY, most.elem()););
    };
    (@limits F $name:ident) => {
        methods!($name(tensor: F, least: Number, most: Number) -> F =
            elementwise::limit(&rows::$name, tensor, &[number::F(least), number::F(most)]),
            else cpu::clamp(tensor, least.elem(), most.elem()););
    };
    (@least $kind:ident $name:ident) => {
        methods!($name(tensor: $kind, least: Number) -> $kind = elementwise::limit(&rows::$name, tensor, &[number::$kind(least)]););
    };
    (@most $kind:ident $name:ident) => {
        methods!($name(tensor: $kind, most: Number) -> $kind = elementwise::limit(&rows::$name, tensor, &[number::$kind(most)]););
    };
    (@limits $kind:ident $name:ident) => {
        methods!($name(tensor: $kind, least: Number, most: Number) -> $kind =
            elementwise::limit(&rows::$name, tensor, &[number::$kind(least), number::$kind(most)]););
    };
    (@compare $kind:ident $name:ident) => {
        methods!($name(lhs: $kind, rhs: $kind, out_dtype: BoolType) -> B = {
            let _ = out_dtype;
            elementwise::compare(&rows::$name, lhs, rhs)
        };);
    };
    (@compare_scalar $kind:ident $name:ident) => {
        methods!($name(lhs: $kind, rhs: Number, out_dtype: BoolType) -> B as compared = {
            let _ = out_dtype;
            elementwise::compare_scalar(&rows::$name, lhs, number::$kind(rhs))
        };);
    };
}

pub(crate) use {elementwise_methods, methods, run};

use crate::kernels::reduce::Reduction;
use crate::kernels::{copy, index, index_nd, reduce};
use crate::runtime::Runtime;
use crate::tensor::{DType, Result, SliceAxis, Tensor};

use super::tensor::stored_dtype;

/// Scalars as kernels of a kind take them.
#[expect(non_snake_case, reason = "named after the kinds of the tables")]
pub(crate) mod number {
    use burn_backend::Scalar;

    use crate::kernels::elementwise::Number;

    pub fn F(scalar: Scalar) -> Number {
        Number::Float(scalar.elem())
    }

    pub fn I(scalar: Scalar) -> Number {
        Number::Int(match scalar {
            Scalar::Int(x) => x.into(),
            Scalar::UInt(x) => x.into(),
            Scalar::Float(x) => x as i128,
            Scalar::Bool(x) => x.into(),
        })
    }

    pub fn B(scalar: Scalar) -> Number {
        Number::Bool(scalar.elem())
    }
}

/// A launch whose result's type was asked for: the context converts the result to it.
pub(crate) fn with<D, T>(_dtype: D, result: crate::tensor::Result<T>) -> crate::tensor::Result<T> {
    result
}

/// The type that was asked for, as a GPU stores it; the context has seen that this one does.
pub(crate) fn stored(runtime: &Runtime, dtype: impl Into<burn_backend::DType>) -> DType {
    stored_dtype(dtype.into(), runtime).unwrap_or(DType::F32)
}

/// How a scatter combines, in the kernels' words.
pub(crate) fn update(op: burn_backend::tensor::IndexingUpdateOp) -> index_nd::Update {
    use burn_backend::tensor::IndexingUpdateOp as Op;
    match op {
        Op::Assign => index_nd::Update::Assign,
        Op::Add => index_nd::Update::Add,
        Op::Mul => index_nd::Update::Mul,
        Op::Min => index_nd::Update::Min,
        Op::Max => index_nd::Update::Max,
    }
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
pub(crate) fn slice_axes(shape: &[usize], slices: &[burn_std::Slice]) -> Vec<SliceAxis> {
    let axis = |(slice, &size): (&burn_std::Slice, &usize)| {
        let range = slice.to_range(size);
        let len = range.end.saturating_sub(range.start).div_ceil(slice.step.unsigned_abs().max(1));
        let start = if slice.step < 0 { range.end.saturating_sub(1) } else { range.start };
        SliceAxis { start, step: slice.step, len }
    };
    slices.iter().zip(shape).map(axis).collect()
}

/// A part of a tensor.
pub(crate) fn slice(tensor: Tensor, slices: &[burn_std::Slice]) -> Result<Tensor> {
    let axes = slice_axes(tensor.shape(), slices);
    copy::slice(tensor, &axes)
}

/// A tensor with a part of it replaced.
pub(crate) fn slice_assign(
    tensor: Tensor,
    slices: &[burn_std::Slice],
    value: Tensor,
) -> Result<Tensor> {
    let axes = slice_axes(tensor.shape(), slices);
    copy::slice_assign(tensor, &axes, value)
}

/// What a trait implementation made from tables needs in scope.
pub(crate) mod prelude {
    pub(crate) use burn_backend::ops::{
        ActivationOps, BoolTensorOps, FloatTensorOps, IntTensorOps, ModuleOps, QTensorOps,
    };
    pub(crate) use burn_backend::{ExecutionError, TensorData, TensorMetadata};
    pub(crate) use burn_flex::Flex;

    pub(crate) use super::super::Wgsl;
    pub(crate) use super::super::context::{OpContext, OpOutput, Operand};
    pub(crate) use super::super::data::{from_data, into_data, to_device};
    pub(crate) use super::super::kinds::*;
    pub(crate) use super::{
        elementwise_methods, methods, number, run, slice, slice_assign, stored, transpose, update,
        with, with_indices,
    };
    pub(crate) use crate::cpu;
    pub(crate) use crate::device::WgslDevice;
    pub(crate) use crate::kernels::elementwise::Number as Literal;
    pub(crate) use crate::kernels::reduce::Reduction;
    pub(crate) use crate::kernels::scan::ScanOp;
    pub(crate) use crate::kernels::table::rows;
    pub(crate) use crate::kernels::{
        cast, conv, copy, create, cross, deform, elementwise, grid_sample, index, index_nd,
        interpolate, matmul, norm, pool, reduce, scan, softmax, sort,
    };
    pub(crate) use crate::tensor::DType;
}
