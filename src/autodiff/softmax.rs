//! Softmax and its logarithm.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::ActivationOps;

use super::kinds::{Axis, F};
use super::node::from_state;
use crate::backend::Wgsl;

pub(super) fn softmax<C: CheckpointStrategy>(tensor: F, dim: Axis) -> F {
    let output = Wgsl::softmax(tensor.primitive.clone(), dim);
    from_state::<C, _>(tensor, output.clone(), (output, dim), |(output, dim), grad| {
        Wgsl::softmax_backward(output, grad, dim)
    })
}

pub(super) fn log_softmax<C: CheckpointStrategy>(tensor: F, dim: Axis) -> F {
    let output = Wgsl::log_softmax(tensor.primitive.clone(), dim);
    from_state::<C, _>(tensor, output.clone(), (output, dim), |(output, dim), grad| {
        Wgsl::log_softmax_backward(output, grad, dim)
    })
}
