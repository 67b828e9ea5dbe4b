//! Gradients of softmax.

use burn_backend::ops::FloatTensorOps;
use burn_flex::{Flex, FlexTensor};

use super::reduce::float_sum_dim;

/// Computes the gradient of softmax from its result `y`: y (grad - sum(y grad)).
pub(crate) fn softmax_backward(
    output: FlexTensor,
    output_grad: FlexTensor,
    dim: usize,
) -> FlexTensor {
    let sum = float_sum_dim(Flex::float_mul(output.clone(), output_grad.clone()), dim);
    Flex::float_mul(output, Flex::float_sub(output_grad, sum))
}

/// Computes the gradient of the logarithm of softmax from its result `y`: grad - e^y sum(grad).
pub(crate) fn log_softmax_backward(
    output: FlexTensor,
    output_grad: FlexTensor,
    dim: usize,
) -> FlexTensor {
    let sum = float_sum_dim(output_grad.clone(), dim);
    Flex::float_sub(output_grad, Flex::float_mul(Flex::float_exp(output), sum))
}
