//! The CPU twin: burn-flex, and what this backend has beyond Burn's contract, computed with it.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use burn_std::Shape;

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
