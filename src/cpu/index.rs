//! Indices out of range: clamped when reading and skipped when writing, as the kernels do. burn-flex panics.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{DType, TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use burn_std::Shape;

/// burn-flex's gather, select or embedding: of an axis of a tensor, by indices.
type Read = fn(usize, FlexTensor, FlexTensor) -> FlexTensor;
/// burn-flex's scatter or its kin: values combined into an axis of a tensor, by indices.
type Write = fn(usize, FlexTensor, FlexTensor, FlexTensor) -> FlexTensor;

/// Reads along an axis, indices outside of it clamped to it.
pub(crate) fn read(flex: Read, axis: usize, tensor: FlexTensor, indices: FlexTensor) -> FlexTensor {
    let indices = clamped(indices, tensor.shape()[axis]);
    flex(axis, tensor, indices)
}

/// Adds along an axis, or for truth values takes whether any is true; indices outside of it are skipped. Indices of one
/// axis stand for whole slices of the value, of more for its elements.
pub(crate) fn add(
    flex: Write,
    axis: usize,
    tensor: FlexTensor,
    indices: FlexTensor,
    value: FlexTensor,
) -> FlexTensor {
    let size = tensor.shape()[axis];
    let bool = burn_std::BoolDType::Native;
    let low = Flex::int_lower_elem(indices.clone(), 0i64.into(), bool);
    let high = Flex::int_greater_equal_elem(indices.clone(), (size as i64).into(), bool);
    let mut outside = Flex::bool_or(low, high);
    if outside.rank() != value.rank() {
        let mut shape = vec![1; value.rank()];
        shape[axis] = outside.shape().num_elements();
        outside = Flex::bool_reshape(outside, Shape::from(shape));
    }
    let outside = Flex::bool_expand(outside, value.shape());
    let value = match value.dtype() {
        DType::Bool(_) => Flex::bool_mask_fill(value, outside, false.into()),
        dtype if dtype.is_float() => Flex::float_mask_fill(value, outside, 0.0.into()),
        _ => Flex::int_mask_fill(value, outside, 0i64.into()),
    };
    flex(axis, tensor, clamped(indices, size), value)
}

/// The gradient of an embedding: a sum into the rows of its weights.
pub(crate) fn embedding_backward(
    weights: FlexTensor,
    grad: FlexTensor,
    indices: FlexTensor,
) -> FlexTensor {
    let rows = indices.shape().num_elements();
    let grad = Flex::float_reshape(grad, Shape::from([rows, weights.shape()[1]]));
    let indices = Flex::int_reshape(indices, Shape::from([rows]));
    let zeros = Flex::float_zeros(weights.shape(), &burn_flex::FlexDevice, weights.dtype().into());
    add(
        |axis, tensor, indices, value| Flex::float_select_add(tensor, axis, indices, value),
        0,
        zeros,
        indices,
        grad,
    )
}

/// Indices with those outside of an axis clamped to it.
fn clamped(indices: FlexTensor, size: usize) -> FlexTensor {
    let last = size.saturating_sub(1) as i64;
    Flex::int_clamp(indices, 0i64.into(), last.into())
}

/// Rows of indices and the sizes of the axes they name.
fn rows(indices: &FlexTensor, shape: &Shape) -> (Vec<i64>, usize, Vec<i64>) {
    let depth = indices.shape().last().copied().unwrap_or(0);
    let sizes = shape.iter().take(depth).map(|&size| size as i64).collect();
    let numbers = indices.clone().into_data().iter::<i64>().collect();
    (numbers, depth.max(1), sizes)
}

/// Rows of indices `[.., k]` with those outside of their axes clamped to them.
pub(crate) fn clamped_nd(indices: FlexTensor, shape: &Shape) -> FlexTensor {
    let (mut numbers, depth, sizes) = rows(&indices, shape);
    for row in numbers.chunks_mut(depth) {
        for (number, size) in row.iter_mut().zip(&sizes) {
            *number = (*number).clamp(0, (size - 1).max(0));
        }
    }
    FlexTensor::from_data(TensorData::new(numbers, indices.shape()))
}

/// The rows of indices `[.., k]` that are inside of their axes, and their values.
pub(crate) fn inside_nd(
    indices: FlexTensor,
    values: FlexTensor,
    shape: &Shape,
) -> (FlexTensor, FlexTensor) {
    let (numbers, depth, sizes) = rows(&indices, shape);
    let is_inside =
        |row: &[i64]| row.iter().zip(&sizes).all(|(number, size)| (0..*size).contains(number));
    if numbers.chunks(depth).all(is_inside) {
        return (indices, values);
    }
    let count = numbers.len() / depth;
    let (dtype, slice) = (values.dtype(), shape.iter().skip(sizes.len()).copied());
    let bytes_per_row = values.shape().num_elements() / count.max(1) * dtype.size();
    let data = values.into_data();
    let (mut kept, mut bytes) = (Vec::new(), Vec::new());
    for (row, value) in numbers.chunks(depth).zip(data.as_bytes().chunks(bytes_per_row.max(1))) {
        if is_inside(row) {
            kept.extend_from_slice(row);
            bytes.extend_from_slice(value);
        }
    }
    let count = kept.len() / depth;
    let value_shape: Vec<usize> = std::iter::once(count).chain(slice).collect();
    (
        FlexTensor::from_data(TensorData::new(kept, [count, depth])),
        FlexTensor::from_data(TensorData::from_bytes_vec(bytes, value_shape, dtype)),
    )
}
