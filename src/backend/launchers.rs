//! The functions, besides the launchers, that the rows of the contract call to launch kernels. They
//! convert Burn's arguments to those of the launchers.

use std::sync::Arc;

use burn_backend::ops::{
    AttentionModuleOptions, ConvTransposeOptions, DeformConvOptions, UnfoldOptions,
};
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::{DType as BurnDType, Scalar};
use burn_std::Slice;

use super::tensor::{GpuQuantized, stored_dtype};
use crate::kernels::conv::geometry::spatial_options;
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::ops::options::{
    AttentionOptions, ConvOptions, DeformOptions, PoolWindow, ScatterOp, TransposedOptions,
};
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::{cast, create, gather, quantized, views};
use crate::runtime::Runtime;
use crate::tensor::{DType, Result, SliceAxis, Tensor};

/// Converts Burn's scalars for launchers, by the kind of the row's tensors.
#[expect(non_snake_case, reason = "named after the kinds of the tables")]
pub(crate) mod scalar_value {
    use super::{Scalar, ScalarValue, int_value};

    pub fn F(scalar: Scalar) -> ScalarValue {
        ScalarValue::Float(scalar.elem())
    }

    pub fn I(scalar: Scalar) -> ScalarValue {
        ScalarValue::Int(int_value(scalar))
    }

    pub fn B(scalar: Scalar) -> ScalarValue {
        ScalarValue::Bool(scalar.elem())
    }
}

/// Converts a scalar to an integer. Floats are truncated.
pub(crate) fn int_value(scalar: Scalar) -> i128 {
    match scalar {
        Scalar::Int(x) => x.into(),
        Scalar::UInt(x) => x.into(),
        Scalar::Float(x) => x as i128,
        Scalar::Bool(x) => x.into(),
    }
}

/// Returns the storage type of a type that the GPU supports, which the context has checked.
fn stored(runtime: &Runtime, dtype: impl Into<BurnDType>) -> DType {
    stored_dtype(dtype.into(), runtime).unwrap_or(DType::F32)
}

/// Creates a float tensor filled with `value`.
pub(crate) fn full_float(
    runtime: &Arc<Runtime>,
    shape: &[usize],
    value: f32,
    dtype: burn_std::FloatDType,
) -> Result<Tensor> {
    create::full(runtime, shape, ScalarValue::Float(value), stored(runtime, dtype))
}

/// Creates an integer tensor filled with `value`.
pub(crate) fn full_int(
    runtime: &Arc<Runtime>,
    shape: &[usize],
    value: i128,
    dtype: burn_std::IntDType,
) -> Result<Tensor> {
    let dtype = stored(runtime, dtype).compute_type();
    create::full(runtime, shape, ScalarValue::Int(value), dtype)
}

/// Creates a boolean tensor filled with `value`.
pub(crate) fn full_bool(runtime: &Arc<Runtime>, shape: &[usize], value: bool) -> Result<Tensor> {
    create::full(runtime, shape, ScalarValue::Bool(value), DType::Bool)
}

/// Creates a vector of the integers of `range` in steps of `step`.
///
/// # Panics
///
/// Panics if the step is zero.
pub(crate) fn arange(
    runtime: &Arc<Runtime>,
    range: std::ops::Range<i64>,
    step: usize,
    dtype: burn_std::IntDType,
) -> Result<Tensor> {
    assert!(step > 0, "arange: the step must not be zero");
    let distance = (i128::from(range.end) - i128::from(range.start)).max(0).unsigned_abs();
    let len = usize::try_from(distance.div_ceil(step as u128)).unwrap_or(usize::MAX);
    create::arange(runtime, range.start, step, len, stored(runtime, dtype).compute_type())
}

/// Casts a tensor to the storage type of a Burn type.
pub(crate) fn cast_to(tensor: Tensor, dtype: impl Into<BurnDType>) -> Result<Tensor> {
    let to = stored(tensor.runtime(), dtype);
    cast::cast(tensor, to)
}

/// Swaps the last two axes.
pub(crate) fn transpose(tensor: Tensor) -> Result<Tensor> {
    let rank = tensor.shape().len();
    views::swap_dims(tensor, rank - 2, rank - 1)
}

/// Computes the maximum or minimum of each line along an axis, and its index. `reduction` is
/// `ArgMax` or `ArgMin`.
pub(crate) fn with_indices(
    reduction: Reduction,
    tensor: Tensor,
    axis: usize,
) -> Result<(Tensor, Tensor)> {
    let indices = reduce::dim(reduction, tensor.clone(), axis)?;
    Ok((gather::gather(axis, tensor, indices.clone())?, indices))
}

/// Converts Burn's slices. A negative step starts at the end of its range.
fn slice_axes(shape: &[usize], slices: &[Slice]) -> Vec<SliceAxis> {
    let axis = |(slice, &size): (&Slice, &usize)| {
        let range = slice.to_range(size);
        let len = range.end.saturating_sub(range.start).div_ceil(slice.step.unsigned_abs().max(1));
        let start = if slice.step < 0 { range.end.saturating_sub(1) } else { range.start };
        SliceAxis { start, step: slice.step, len }
    };
    slices.iter().zip(shape).map(axis).collect()
}

/// Slices a tensor.
pub(crate) fn slice(tensor: Tensor, slices: &[Slice]) -> Result<Tensor> {
    let axes = slice_axes(tensor.shape(), slices);
    views::slice(tensor, &axes)
}

/// Replaces a slice of a tensor with `value`.
pub(crate) fn slice_assign(tensor: Tensor, slices: &[Slice], value: Tensor) -> Result<Tensor> {
    let axes = slice_axes(tensor.shape(), slices);
    views::slice_assign(tensor, &axes, value)
}

/// Slices a quantised tensor.
pub(crate) fn slice_quantized(
    tensor: quantized::Quantized,
    slices: &[Slice],
) -> Result<quantized::Quantized> {
    let axes = slice_axes(tensor.shape(), slices);
    quantized::slice(tensor, &axes)
}

/// Reduces a quantised tensor along an axis to indices. `reduction` is `ArgMax` or `ArgMin`.
/// Dequantises first, because integers of different blocks have different scales.
pub(crate) fn arg_reduce_quantized(
    reduction: Reduction,
    tensor: &GpuQuantized,
    axis: usize,
) -> Result<Tensor> {
    reduce::dim(reduction, quantized::dequantize(&tensor.values)?, axis)
}

/// Converts Burn's scatter op.
pub(crate) fn scatter_op(op: IndexingUpdateOp) -> ScatterOp {
    match op {
        IndexingUpdateOp::Assign => ScatterOp::Assign,
        IndexingUpdateOp::Add => ScatterOp::Add,
        IndexingUpdateOp::Mul => ScatterOp::Mul,
        IndexingUpdateOp::Min => ScatterOp::Min,
        IndexingUpdateOp::Max => ScatterOp::Max,
    }
}

/// Extends options of `N` spatial axes to depth, height and width.
fn conv_options<const N: usize>(
    stride: [usize; N],
    padding: [usize; N],
    dilation: [usize; N],
    groups: usize,
) -> ConvOptions {
    ConvOptions {
        stride: spatial_options(stride, 1),
        padding: spatial_options(padding, 0),
        dilation: spatial_options(dilation, 1),
        groups,
    }
}

impl<const N: usize> From<burn_backend::ops::ConvOptions<N>> for ConvOptions {
    fn from(options: burn_backend::ops::ConvOptions<N>) -> Self {
        conv_options(options.stride, options.padding, options.dilation, options.groups)
    }
}

impl<const N: usize> From<ConvTransposeOptions<N>> for TransposedOptions {
    fn from(options: ConvTransposeOptions<N>) -> Self {
        Self {
            conv: conv_options(options.stride, options.padding, options.dilation, options.groups),
            output_padding: spatial_options(options.padding_out, 0),
        }
    }
}

impl From<DeformConvOptions<2>> for DeformOptions {
    fn from(options: DeformConvOptions<2>) -> Self {
        Self {
            conv: conv_options(
                options.stride,
                options.padding,
                options.dilation,
                options.weight_groups,
            ),
            offset_groups: options.offset_groups,
        }
    }
}

impl From<UnfoldOptions> for ConvOptions {
    fn from(options: UnfoldOptions) -> Self {
        let UnfoldOptions { stride, padding, dilation } = options;
        burn_backend::ops::ConvOptions::new(stride, padding, dilation, 1).into()
    }
}

/// Returns the window of average pooling.
pub(crate) fn average_window(
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    count_include_pad: bool,
    ceil_mode: bool,
) -> PoolWindow {
    PoolWindow { kernel, stride, padding, dilation: [1, 1], ceil_mode, count_include_pad }
}

/// Returns the window of max pooling.
pub(crate) fn max_window(
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
) -> PoolWindow {
    PoolWindow { kernel, stride, padding, dilation, ceil_mode, count_include_pad: false }
}

/// Converts Burn's attention options.
///
/// # Panics
///
/// Panics if the softcap is not positive.
pub(crate) fn attention_options(options: &AttentionModuleOptions) -> AttentionOptions {
    if let Some(softcap) = options.softcap {
        assert!(softcap > 0.0, "attention: the softcap must be positive, not {softcap}");
    }
    AttentionOptions {
        scale: options.scale.map(|scale| scale as f32),
        softcap: options.softcap.map(|softcap| softcap as f32),
        causal: options.is_causal,
        hidden_score: None,
    }
}
