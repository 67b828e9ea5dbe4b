//! Gathers and scatters, which accept indices outside their axis like the kernels: reads clamp
//! them, writes skip them. burn-flex panics.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps, ModuleOps};
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::{DType, TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use burn_std::Shape;

/// Defines gathers that clamp their indices.
macro_rules! gathers {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(dim: usize, tensor: FlexTensor, indices: FlexTensor) -> FlexTensor {
            let indices = clamped(indices, tensor.shape()[dim]);
            Flex::$name(dim, tensor, indices)
        })*
    };
}

/// Defines selects that clamp their indices.
macro_rules! selects {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(tensor: FlexTensor, dim: usize, indices: FlexTensor) -> FlexTensor {
            let indices = clamped(indices, tensor.shape()[dim]);
            Flex::$name(tensor, dim, indices)
        })*
    };
}

/// Defines scatters that skip updates outside the axis.
macro_rules! scatters {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(
            dim: usize,
            tensor: FlexTensor,
            indices: FlexTensor,
            value: FlexTensor,
        ) -> FlexTensor {
            let (indices, value) = skip_outside(dim, &tensor, indices, value);
            Flex::$name(dim, tensor, indices, value)
        })*
    };
}

/// Defines additions to selected slices that skip slices outside the axis.
macro_rules! select_adds {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(
            tensor: FlexTensor,
            dim: usize,
            indices: FlexTensor,
            value: FlexTensor,
        ) -> FlexTensor {
            let (indices, value) = skip_outside(dim, &tensor, indices, value);
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
    let indices = clamped(indices, weights.shape()[0]);
    Flex::embedding(weights, indices)
}

/// Computes the gradient of an embedding with respect to its weights: the sum of `grad` for each
/// row.
pub(crate) fn embedding_backward(
    weights: FlexTensor,
    grad: FlexTensor,
    indices: FlexTensor,
) -> FlexTensor {
    let rows = indices.shape().num_elements();
    let grad = Flex::float_reshape(grad, Shape::from([rows, weights.shape()[1]]));
    let indices = Flex::int_reshape(indices, Shape::from([rows]));
    let zeros = Flex::float_zeros(weights.shape(), &burn_flex::FlexDevice, weights.dtype().into());
    float_select_add(zeros, 0, indices, grad)
}

/// Defines gathers at multi-dimensional indices that clamp the indices.
macro_rules! gathers_nd {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(data: FlexTensor, indices: FlexTensor) -> FlexTensor {
            let indices = clamped_nd(indices, &data.shape());
            Flex::$name(data, indices)
        })*
    };
}

/// Defines scatters to multi-dimensional indices that skip updates outside the axes.
macro_rules! scatters_nd {
    ($($name:ident)*) => {
        $(pub(crate) fn $name(
            data: FlexTensor,
            indices: FlexTensor,
            values: FlexTensor,
            op: IndexingUpdateOp,
        ) -> FlexTensor {
            let (indices, values) = skip_outside_nd(indices, values, &data.shape());
            Flex::$name(data, indices, values, op)
        })*
    };
}

gathers_nd! { float_gather_nd int_gather_nd }
scatters_nd! { float_scatter_nd int_scatter_nd }

/// Clamps `indices` to axis `dim` of `tensor`, and sets the values of the clamped indices to zero
/// or `false`. Adding zero or combining `false` by `or` changes nothing. Indices of the rank of
/// `value` address elements; one-dimensional indices address slices.
fn skip_outside(
    dim: usize,
    tensor: &FlexTensor,
    indices: FlexTensor,
    value: FlexTensor,
) -> (FlexTensor, FlexTensor) {
    let size = tensor.shape()[dim];
    let bool_type = burn_std::BoolDType::Native;
    let below = Flex::int_lower_elem(indices.clone(), 0i64.into(), bool_type);
    let above = Flex::int_greater_equal_elem(indices.clone(), (size as i64).into(), bool_type);
    let mut outside = Flex::bool_or(below, above);
    if outside.rank() != value.rank() {
        let mut shape = vec![1; value.rank()];
        shape[dim] = outside.shape().num_elements();
        outside = Flex::bool_reshape(outside, Shape::from(shape));
    }
    let outside = Flex::bool_expand(outside, value.shape());
    let value = match value.dtype() {
        DType::Bool(_) => Flex::bool_mask_fill(value, outside, false.into()),
        dtype if dtype.is_float() => Flex::float_mask_fill(value, outside, 0.0.into()),
        _ => Flex::int_mask_fill(value, outside, 0i64.into()),
    };
    (clamped(indices, size), value)
}

/// Clamps indices to an axis of `size` elements.
fn clamped(indices: FlexTensor, size: usize) -> FlexTensor {
    let last = size.saturating_sub(1) as i64;
    Flex::int_clamp(indices, 0i64.into(), last.into())
}

/// Returns the values of `indices` `[.., k]`, the length of their rows (at least 1), and the sizes
/// of the `k` axes that they address.
fn index_rows(indices: &FlexTensor, shape: &Shape) -> (Vec<i64>, usize, Vec<i64>) {
    let axes = indices.shape().last().copied().unwrap_or(0);
    let sizes = shape.iter().take(axes).map(|&size| size as i64).collect();
    let indices = indices.clone().into_data().iter::<i64>().collect();
    (indices, axes.max(1), sizes)
}

/// Clamps `indices` `[.., k]` to the first `k` axes of `shape`.
fn clamped_nd(indices: FlexTensor, shape: &Shape) -> FlexTensor {
    let (mut index_values, row_len, sizes) = index_rows(&indices, shape);
    for row in index_values.chunks_mut(row_len) {
        for (index, size) in row.iter_mut().zip(&sizes) {
            *index = (*index).clamp(0, (size - 1).max(0));
        }
    }
    FlexTensor::from_data(TensorData::new(index_values, indices.shape()))
}

/// Returns the rows of `indices` `[.., k]` that are inside the first `k` axes of `shape`, and the
/// values of these rows.
fn skip_outside_nd(
    indices: FlexTensor,
    values: FlexTensor,
    shape: &Shape,
) -> (FlexTensor, FlexTensor) {
    let (index_values, row_len, sizes) = index_rows(&indices, shape);
    let is_inside =
        |row: &[i64]| row.iter().zip(&sizes).all(|(index, size)| (0..*size).contains(index));
    if index_values.chunks(row_len).all(is_inside) {
        return (indices, values);
    }
    let count = index_values.len() / row_len;
    let (dtype, slice_shape) = (values.dtype(), shape.iter().skip(sizes.len()).copied());
    let bytes_per_row = values.shape().num_elements() / count.max(1) * dtype.size();
    let data = values.into_data();
    let (mut inside_indices, mut inside_bytes) = (Vec::new(), Vec::new());
    for (row, value) in
        index_values.chunks(row_len).zip(data.as_bytes().chunks(bytes_per_row.max(1)))
    {
        if is_inside(row) {
            inside_indices.extend_from_slice(row);
            inside_bytes.extend_from_slice(value);
        }
    }
    let count = inside_indices.len() / row_len;
    let value_shape: Vec<usize> = std::iter::once(count).chain(slice_shape).collect();
    (
        FlexTensor::from_data(TensorData::new(inside_indices, [count, row_len])),
        FlexTensor::from_data(TensorData::from_bytes_vec(inside_bytes, value_shape, dtype)),
    )
}
