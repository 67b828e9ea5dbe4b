//! Gathers and scatters, which panic if an index is outside its axis. burn-flex panics too, but
//! names neither the op nor the axis.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps, ModuleOps};
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::{DType, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use burn_std::Shape;

use super::memory::check_memory;

/// Defines gathers that check their indices.
macro_rules! gathers {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(dim: usize, tensor: FlexTensor, indices: FlexTensor) -> FlexTensor {
            check_indices(stringify!($name), &indices, dim, &tensor);
            check_memory(stringify!($name), &indices.shape(), tensor.dtype().size());
            Flex::$name(dim, tensor, indices)
        })*
    };
}

/// Defines selects that check their indices.
macro_rules! selects {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(tensor: FlexTensor, dim: usize, indices: FlexTensor) -> FlexTensor {
            check_indices(stringify!($name), &indices, dim, &tensor);
            let mut shape = tensor.shape().to_vec();
            shape[dim] = indices.shape().num_elements();
            check_memory(stringify!($name), &shape, tensor.dtype().size());
            Flex::$name(tensor, dim, indices)
        })*
    };
}

/// Defines scatters that check their indices.
macro_rules! scatters {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(
            dim: usize,
            tensor: FlexTensor,
            indices: FlexTensor,
            value: FlexTensor,
        ) -> FlexTensor {
            check_indices(stringify!($name), &indices, dim, &tensor);
            Flex::$name(dim, tensor, indices, value)
        })*
    };
}

/// Defines additions to selected slices that check their indices.
macro_rules! select_adds {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(
            tensor: FlexTensor,
            dim: usize,
            indices: FlexTensor,
            value: FlexTensor,
        ) -> FlexTensor {
            check_indices(stringify!($name), &indices, dim, &tensor);
            Flex::$name(tensor, dim, indices, value)
        })*
    };
}

gathers! { float_gather int_gather bool_gather }
selects! { float_select int_select bool_select }
scatters! { float_scatter_add int_scatter_add bool_scatter_or }
select_adds! { float_select_add int_select_add bool_select_or }

/// Returns the rows of `weights` `[rows, width]` at the indices.
pub(crate) fn embedding(weights: FlexTensor, indices: FlexTensor) -> FlexTensor {
    check_indices("embedding", &indices, 0, &weights);
    let mut shape = indices.shape().to_vec();
    shape.extend(weights.shape().last());
    check_memory("embedding", &shape, weights.dtype().size());
    Flex::embedding(weights, indices)
}

/// Computes the gradient of an embedding with respect to its weights: the sum of `grad` for each
/// row.
pub(crate) fn embedding_backward(
    weights: FlexTensor,
    grad: FlexTensor,
    indices: FlexTensor,
) -> FlexTensor {
    check_indices("embedding_backward", &indices, 0, &weights);
    let rows = indices.shape().num_elements();
    let grad = Flex::float_reshape(grad, Shape::from([rows, weights.shape()[1]]));
    let indices = Flex::int_reshape(indices, Shape::from([rows]));
    let zeros = Flex::float_zeros(weights.shape(), &burn_flex::FlexDevice, weights.dtype().into());
    Flex::float_select_add(zeros, 0, indices, grad)
}

/// Defines gathers at multi-dimensional indices that check the indices.
macro_rules! gathers_nd {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(data: FlexTensor, indices: FlexTensor) -> FlexTensor {
            check_indices_nd(stringify!($name), &indices, &data);
            Flex::$name(data, indices)
        })*
    };
}

/// Defines scatters to multi-dimensional indices that check the indices.
macro_rules! scatters_nd {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(
            data: FlexTensor,
            indices: FlexTensor,
            values: FlexTensor,
            op: IndexingUpdateOp,
        ) -> FlexTensor {
            check_indices_nd(stringify!($name), &indices, &data);
            Flex::$name(data, indices, values, op)
        })*
    };
}

gathers_nd! { float_gather_nd int_gather_nd }
scatters_nd! { float_scatter_nd int_scatter_nd }

/// Panics if an index is outside axis `axis` of `tensor`.
fn check_indices(op: &str, indices: &FlexTensor, axis: usize, tensor: &FlexTensor) {
    let size = tensor.shape()[axis];
    let outside = |index: &i64| !(0..size as i64).contains(index);
    let indices = indices.to_contiguous();
    // The common types are read without a copy.
    let found = match indices.dtype() {
        DType::I64 => {
            indices.as_slice::<i64>().and_then(|values| values.iter().copied().find(outside))
        }
        DType::I32 => indices
            .as_slice::<i32>()
            .and_then(|values| values.iter().copied().map(i64::from).find(outside)),
        _ => indices.into_data().iter::<i64>().find(outside),
    };
    if let Some(index) = found {
        fail_outside(op, index, axis, size);
    }
}

/// Panics if an element of a row of `indices` `[.., k]` is outside its axis, one of the first `k`
/// axes of `tensor`.
fn check_indices_nd(op: &str, indices: &FlexTensor, tensor: &FlexTensor) {
    let shape = tensor.shape();
    let axes = indices.shape().last().copied().unwrap_or(0);
    let indices: Vec<i64> = indices.clone().into_data().iter().collect();
    for row in indices.chunks(axes.max(1)) {
        for (axis, (&index, &size)) in row.iter().zip(shape.iter()).enumerate() {
            if !(0..size as i64).contains(&index) {
                fail_outside(op, index, axis, size);
            }
        }
    }
}

#[cold]
pub(super) fn fail_outside(op: &str, index: i64, axis: usize, size: usize) -> ! {
    panic!("{op}: index {index} is out of range for axis {axis} of size {size}")
}
