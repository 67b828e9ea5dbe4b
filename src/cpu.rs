//! The CPU twin: burn-flex, and what it lacks or loses, computed with it.

use burn_backend::ops::{FloatTensorOps, InterpolateMode, InterpolateOptions, ModuleOps};
use burn_backend::{TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use burn_std::Shape;

use crate::kernels::interpolate::{Mode, Runs};
use crate::kernels::table::{Row, Truth};

/// An elementwise row with one operand, by its truth.
pub(crate) fn map(row: &Row, tensor: FlexTensor) -> FlexTensor {
    let Truth::F1(truth) = row.truth else {
        panic!("{}: the row's truth is of another kind", row.name)
    };
    let (dtype, data) = (tensor.dtype(), tensor.into_data());
    let values: Vec<f64> = data.iter::<f64>().map(truth).collect();
    FlexTensor::from_data(TensorData::new(values, data.shape).convert_dtype(dtype))
}

/// An elementwise row with two operands that broadcast, by its truth.
pub(crate) fn map2(row: &Row, lhs: FlexTensor, rhs: FlexTensor) -> FlexTensor {
    let Truth::F2(truth) = row.truth else {
        panic!("{}: the row's truth is of another kind", row.name)
    };
    let shape = lhs
        .shape()
        .broadcast(&rhs.shape())
        .unwrap_or_else(|error| panic!("{}: {error:?}", row.name));
    let dtype = lhs.dtype();
    let spread = |tensor| Flex::float_expand(tensor, shape.clone()).into_data();
    let (lhs, rhs) = (spread(lhs), spread(rhs));
    let values: Vec<f64> = lhs
        .iter::<f64>()
        .zip(rhs.iter::<f64>())
        .map(|(a, b)| truth(a, b))
        .collect();
    FlexTensor::from_data(TensorData::new(values, shape).convert_dtype(dtype))
}

/// Each row divided by its root mean square, times `gamma`.
pub(crate) fn rms_norm(x: FlexTensor, gamma: FlexTensor, epsilon: f64) -> FlexTensor {
    let axis = x.rank() - 1;
    let mean = Flex::float_mean_dim(Flex::float_mul(x.clone(), x.clone()), axis);
    let scale = Flex::float_sqrt(Flex::float_add_scalar(mean, epsilon.into()));
    let mut shape = vec![1; axis];
    shape.push(gamma.shape().num_elements());
    let gamma = Flex::float_reshape(gamma, Shape::from(shape));
    Flex::float_mul(Flex::float_div(x, scale), gamma)
}

/// The gradient of resizing. burn-flex has none of the Lanczos filter: that one is a product with the matrices
/// that resize rows and columns.
pub(crate) fn interpolate_backward(
    x: FlexTensor,
    grad: FlexTensor,
    output: [usize; 2],
    options: InterpolateOptions,
) -> FlexTensor {
    if !matches!(options.mode, InterpolateMode::Lanczos3) {
        return Flex::interpolate_backward(x, grad, output, options);
    }
    let matrix = |input: usize, output: usize| {
        let runs = Runs::resizing(Mode::Lanczos3, options.align_corners, input, output);
        let mut values = vec![0.0f32; output * input];
        for (row, first, weights) in runs.iter() {
            let start = row * input + first;
            values[start..start + weights.len()].copy_from_slice(weights);
        }
        let data = TensorData::new(values, [1, 1, output, input]).convert_dtype(grad.dtype());
        FlexTensor::from_data(data)
    };
    let [_, _, height, width] = x.shape().dims();
    let rows = Flex::float_transpose(matrix(height, output[0]));
    let columns = matrix(width, output[1]);
    Flex::float_matmul(Flex::float_matmul(rows, grad.clone()), columns)
}
