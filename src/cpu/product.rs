//! Products whose shapes are checked as those of the kernels are: burn-flex asserts them without the op.

use burn_backend::TensorMetadata;
use burn_backend::ops::{FloatTensorOps, IntTensorOps, ModuleOps};
use burn_flex::{Flex, FlexTensor};

use super::memory::check_result;
use crate::kernels::matmul::{linear_shape, product_shape};

pub(crate) fn float_matmul(lhs: FlexTensor, rhs: FlexTensor) -> FlexTensor {
    check_product("float_matmul", &lhs, &rhs);
    Flex::float_matmul(lhs, rhs)
}

pub(crate) fn int_matmul(lhs: FlexTensor, rhs: FlexTensor) -> FlexTensor {
    check_product("int_matmul", &lhs, &rhs);
    Flex::int_matmul(lhs, rhs)
}

pub(crate) fn linear(x: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
    let bias_shape = bias.as_ref().map(TensorMetadata::shape);
    let (lhs, rhs) = (x.shape(), weight.shape());
    let shape = linear_shape(&lhs, &rhs, bias_shape.as_ref().map(|shape| &shape[..]));
    check_result("linear", shape, x.dtype());
    Flex::linear(x, weight, bias)
}

fn check_product(op: &str, lhs: &FlexTensor, rhs: &FlexTensor) {
    check_result(op, product_shape(&lhs.shape(), &rhs.shape(), None), lhs.dtype());
}
