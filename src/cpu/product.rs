//! Products whose shapes are checked as those of the kernels are: burn-flex asserts them without the op.

use burn_backend::ops::{FloatTensorOps, IntTensorOps, ModuleOps};
use burn_backend::{DType, TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};

use super::memory::check_result;
use crate::kernels::matmul::{linear_shape, product_shape};
use crate::tensor::Shape;

pub(crate) fn float_matmul(lhs: FlexTensor, rhs: FlexTensor) -> FlexTensor {
    let shape = product(&lhs, &rhs, "float_matmul");
    if is_empty(&lhs) || is_empty(&rhs) {
        return zeros(shape, lhs.dtype());
    }
    Flex::float_matmul(lhs, rhs)
}

pub(crate) fn int_matmul(lhs: FlexTensor, rhs: FlexTensor) -> FlexTensor {
    let shape = product(&lhs, &rhs, "int_matmul");
    if is_empty(&lhs) || is_empty(&rhs) {
        return zeros(shape, lhs.dtype());
    }
    Flex::int_matmul(lhs, rhs)
}

fn is_empty(tensor: &FlexTensor) -> bool {
    tensor.shape().num_elements() == 0
}

/// The product of an operand without elements. burn-flex reads elements of it if the batch of the other is repeated.
fn zeros(shape: Shape, dtype: DType) -> FlexTensor {
    let len = shape.iter().product();
    FlexTensor::from_data(TensorData::new(vec![0i32; len], shape.to_vec()).convert_dtype(dtype))
}

pub(crate) fn linear(x: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
    let bias_shape = bias.as_ref().map(TensorMetadata::shape);
    let (lhs, rhs) = (x.shape(), weight.shape());
    let shape = linear_shape(&lhs, &rhs, bias_shape.as_ref().map(|shape| &shape[..]));
    let shape = check_result("linear", shape, x.dtype());
    if is_empty(&x) || is_empty(&weight) {
        let product = zeros(shape, x.dtype());
        return match bias {
            Some(bias) => Flex::float_add(product, bias),
            None => product,
        };
    }
    Flex::linear(x, weight, bias)
}

/// Returns the shape of a product.
fn product(lhs: &FlexTensor, rhs: &FlexTensor, op: &str) -> Shape {
    check_result(op, product_shape(&lhs.shape(), &rhs.shape(), None), lhs.dtype())
}
