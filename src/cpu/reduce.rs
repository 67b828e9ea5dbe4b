//! Reductions. burn-flex's reductions of all elements ignore NaN, and its sums along an axis read
//! past the end of some expanded views.

use burn_backend::TensorMetadata;
use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_flex::{Flex, FlexTensor};
use burn_std::Shape;

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

packed_first! { float_sum_dim float_mean_dim int_sum_dim int_mean_dim }
