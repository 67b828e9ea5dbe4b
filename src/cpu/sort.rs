//! The indices of the largest elements, which burn-flex lacks.

use burn_backend::TensorMetadata;
use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_flex::{Flex, FlexTensor};
use burn_std::{IntDType, Slice};

pub(crate) fn float_argtopk(
    tensor: FlexTensor,
    dim: usize,
    k: usize,
    dtype: IntDType,
) -> FlexTensor {
    first(Flex::float_argsort(tensor, dim, true, dtype), dim, k)
}

pub(crate) fn int_argtopk(tensor: FlexTensor, dim: usize, k: usize) -> FlexTensor {
    first(Flex::int_argsort(tensor, dim, true), dim, k)
}

/// Returns the first `k` elements along an axis.
fn first(tensor: FlexTensor, dim: usize, k: usize) -> FlexTensor {
    let mut slices = vec![Slice::full(); tensor.shape().num_dims()];
    slices[dim] = Slice::new(0, Some(k as isize), 1);
    Flex::int_slice(tensor, &slices)
}
