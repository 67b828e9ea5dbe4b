//! Softmax and its logarithm.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::TensorMetadata;
use burn_backend::ops::{ActivationOps, FloatTensorOps};

use super::attention;
use super::cast::keeping_16_bits;
use super::kinds::{Axis, F};
use super::node::node;
use crate::autocast::rules::Rule;
use crate::backend::Wgsl;

pub(super) fn softmax<C: CheckpointStrategy>(tensor: F, dim: Axis) -> F {
    let op = |tensor| Wgsl::softmax(tensor, dim);
    attention::weights(tensor, |tensor| {
        keeping_16_bits::<C, _>(Rule::Full, tensor, op, dim, |[], (output, dim), grad| {
            let output = Wgsl::float_cast(output, grad.dtype().into());
            [Wgsl::softmax_backward(output, grad, dim)]
        })
    })
}

pub(super) fn log_softmax<C: CheckpointStrategy>(tensor: F, dim: Axis) -> F {
    let output = Wgsl::log_softmax(tensor.primitive.clone(), dim);
    let state = (output.clone(), dim);
    node::<C, _, 1, 0>([tensor], output, state, |[], (output, dim), grad| {
        [Wgsl::log_softmax_backward(output, grad, dim)]
    })
}
