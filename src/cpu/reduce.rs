//! Reductions. burn-flex's reductions of all elements ignore NaN, its sums along an axis read past
//! the end of some expanded views, its sums of all elements are wrong for some views, long sums lose
//! their last terms, and it rejects the mean of no floats and the index of a maximum of no elements
//! without naming the op.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{TensorData, TensorMetadata};
use burn_flex::{Flex, FlexDevice, FlexTensor};
use burn_std::{BoolDType, BoolStore, DType, FloatDType, IntDType, Shape};

pub(crate) fn float_max(tensor: FlexTensor) -> FlexTensor {
    reduce_all(tensor, Flex::float_max_dim)
}

pub(crate) fn float_min(tensor: FlexTensor) -> FlexTensor {
    reduce_all(tensor, Flex::float_min_dim)
}

pub(crate) fn float_max_abs(tensor: FlexTensor) -> FlexTensor {
    reduce_all(Flex::float_abs(tensor), Flex::float_max_dim)
}

/// Reduces all elements by a reduction along one axis.
fn reduce_all(tensor: FlexTensor, reduce: fn(FlexTensor, usize) -> FlexTensor) -> FlexTensor {
    let shape = Shape::from([tensor.shape().num_elements()]);
    reduce(Flex::float_reshape(tensor.to_contiguous(), shape), 0)
}

/// Defines reductions that copy views to packed tensors first.
macro_rules! packed_first {
    ($($name:ident($($dim:ident)?))*) => {
        $(pub(crate) fn $name(tensor: FlexTensor $(, $dim: usize)?) -> FlexTensor {
            Flex::$name(tensor.to_contiguous() $(, $dim)?)
        })*
    };
}

packed_first! { int_sum_dim(dim) int_mean_dim(dim) int_sum() int_mean() }

/// Lines up to this length are summed by burn-flex, in f32: the sum of ones is exact, and rounding errors are small.
const MAX_SUMMED: usize = 4096;

/// Computes the sum along an axis.
pub(crate) fn float_sum_dim(tensor: FlexTensor, dim: usize) -> FlexTensor {
    match tensor.shape()[dim] <= MAX_SUMMED {
        true => Flex::float_sum_dim(tensor.to_contiguous(), dim),
        false => long_sums(tensor, dim, 1.0),
    }
}

/// Computes the means over several axes.
pub(crate) fn mean_axes(tensor: FlexTensor, axes: &[usize]) -> FlexTensor {
    axes.iter().fold(tensor, |tensor, axis| float_mean_dim(tensor, *axis))
}

/// Computes the mean along an axis; NaN if the axis is empty.
pub(crate) fn float_mean_dim(tensor: FlexTensor, dim: usize) -> FlexTensor {
    let mut shape = tensor.shape();
    match shape[dim] {
        0 => {
            shape[dim] = 1;
            Flex::float_full(shape, f64::NAN.into(), &FlexDevice, tensor.dtype().into())
        }
        len if len > MAX_SUMMED => long_sums(tensor, dim, len as f64),
        _ => Flex::float_mean_dim(tensor.to_contiguous(), dim),
    }
}

/// Computes the sum of all elements.
pub(crate) fn float_sum(tensor: FlexTensor) -> FlexTensor {
    reduce_all(tensor, float_sum_dim)
}

/// Computes the mean of all elements.
pub(crate) fn float_mean(tensor: FlexTensor) -> FlexTensor {
    reduce_all(tensor, float_mean_dim)
}

/// Computes the sums along an axis in f64, divided by `divisor`.
fn long_sums(tensor: FlexTensor, dim: usize, divisor: f64) -> FlexTensor {
    let dtype = tensor.dtype();
    if dtype == DType::F64 {
        // An f64 has digits enough for a line of any length.
        let sums = Flex::float_sum_dim(tensor.to_contiguous(), dim);
        return Flex::float_div_scalar(sums, divisor.into());
    }
    let tensor = Flex::float_cast(tensor, FloatDType::F32).to_contiguous();
    let mut shape = tensor.shape();
    let len = shape[dim];
    let inner: usize = shape[dim + 1..].iter().product();
    shape[dim] = 1;
    let data = tensor.into_data();
    let elements = data.as_slice::<f32>().expect("elements of f32");
    let mut sums = Vec::with_capacity(shape.num_elements());
    if !elements.is_empty() {
        for lines in elements.chunks_exact(len * inner) {
            match inner {
                1 => sums.push(sum(lines)),
                _ => sums.extend(sums_of_columns(lines, inner)),
            }
        }
    }
    let quotients: Vec<f32> = sums.into_iter().map(|sum| (sum / divisor) as f32).collect();
    let sums = FlexTensor::from_data(TensorData::new(quotients, shape));
    Flex::float_cast(sums, dtype.into())
}

/// Returns the sum of a line, by as many sums as compilers keep in vector registers.
fn sum(line: &[f32]) -> f64 {
    let mut sums = [0.0; 16];
    let (chunks, rest) = line.as_chunks::<16>();
    for chunk in chunks {
        for (sum, &element) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(element);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|&element| f64::from(element)).sum::<f64>()
}

/// Returns the sums of the columns of rows of `width` elements.
fn sums_of_columns(rows: &[f32], width: usize) -> Vec<f64> {
    let mut sums = vec![0.0; width];
    for row in rows.chunks_exact(width) {
        for (sum, &element) in sums.iter_mut().zip(row) {
            *sum += f64::from(element);
        }
    }
    sums
}

/// Panics if the axis along which an op looks for a maximum or minimum is empty.
fn check_not_empty(op: &str, tensor: &FlexTensor, dim: usize) {
    let shape = tensor.shape();
    assert!(
        shape[dim] > 0,
        "{op}: axis {dim} of a tensor of shape {:?} must not be empty",
        shape.as_slice()
    );
}

/// Defines indices of maxima or minima that reject empty axes.
macro_rules! of_non_empty_axes {
    ($($name:ident($($dtype:ident)?))*) => {
        $(pub(crate) fn $name(
            tensor: FlexTensor,
            dim: usize,
            $($dtype: IntDType,)?
        ) -> FlexTensor {
            check_not_empty(stringify!($name), &tensor, dim);
            Flex::$name(tensor, dim $(, $dtype)?)
        })*
    };
}

of_non_empty_axes! { int_argmax() int_argmin() }

/// Defines indices of maxima or minima of floats, of which the first NaN is one. burn-flex skips NaN, or not, depending
/// on where it is.
macro_rules! of_floats {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(tensor: FlexTensor, dim: usize, dtype: IntDType) -> FlexTensor {
            check_not_empty(stringify!($name), &tensor, dim);
            let indices = Flex::$name(tensor.clone(), dim, dtype);
            first_nan_or(tensor, dim, indices, dtype)
        })*
    };
}

of_floats! { float_argmax float_argmin }

/// Returns the index of the first NaN of each line along an axis, or `indices` where there is none.
fn first_nan_or(
    tensor: FlexTensor,
    dim: usize,
    indices: FlexTensor,
    dtype: IntDType,
) -> FlexTensor {
    let bools = BoolDType::from(BoolStore::Native);
    let is_nan = Flex::float_is_nan(tensor.to_contiguous(), bools);
    if !is_nan.clone().into_data().iter::<bool>().any(|is_nan| is_nan) {
        return indices;
    }
    let has_nan = Flex::bool_any_dim(is_nan.clone(), dim);
    let first = Flex::int_argmax(Flex::bool_into_int(is_nan, dtype), dim);
    Flex::int_mask_where(indices, has_nan, Flex::int_cast(first, dtype))
}
