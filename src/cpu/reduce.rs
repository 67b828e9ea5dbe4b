//! Reductions. burn-flex's reductions of all elements ignore NaN, its sums along an axis read past
//! the end of some expanded views, and it rejects the mean of no floats and the index of a maximum
//! of no elements without naming the op.

use burn_backend::TensorMetadata;
use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_flex::{Flex, FlexDevice, FlexTensor};
use burn_std::{IntDType, Shape};

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
    let len = tensor.shape().num_elements();
    reduce(Flex::float_reshape(tensor, Shape::from([len])), 0)
}

/// Defines reductions along an axis that copy views to packed tensors first.
macro_rules! packed_first {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(tensor: FlexTensor, dim: usize) -> FlexTensor {
            Flex::$name(tensor.to_contiguous(), dim)
        })*
    };
}

packed_first! { float_sum_dim int_sum_dim int_mean_dim }

/// Computes the mean along an axis; NaN if the axis is empty.
pub(crate) fn float_mean_dim(tensor: FlexTensor, dim: usize) -> FlexTensor {
    let mut shape = tensor.shape();
    if shape[dim] > 0 {
        return Flex::float_mean_dim(tensor.to_contiguous(), dim);
    }
    shape[dim] = 1;
    Flex::float_full(shape, f64::NAN.into(), &FlexDevice, tensor.dtype().into())
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

of_non_empty_axes! { float_argmax(dtype) float_argmin(dtype) int_argmax() int_argmin() }
