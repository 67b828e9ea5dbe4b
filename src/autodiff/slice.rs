//! Assignments to slices. Burn's gradient copies all of the gradient for each assignment, so that a
//! loop that fills a tensor, as in Burn's LSTM, takes time quadratic in its steps.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;

use super::kinds::{F, Slices};
use super::node::node_in_place;
use crate::backend::Wgsl;

pub(super) fn float_slice_assign<C: CheckpointStrategy>(tensor: F, slices: Slices, value: F) -> F {
    let compute = |[tensor, value]: [_; 2]| Wgsl::float_slice_assign(tensor, slices, value);
    node_in_place::<C, _, 2>([tensor, value], compute, slices.to_vec(), |[], slices, grad| {
        let part = Wgsl::float_slice(grad.clone(), &slices);
        // A copy, so that nothing else needs the memory of the gradient.
        let value_grad = Wgsl::float_cat(vec![part], 0);
        let device = Wgsl::float_device(&grad);
        let zeros = Wgsl::float_zeros(value_grad.shape(), &device, grad.dtype().into());
        [Wgsl::float_slice_assign(grad, &slices, zeros), value_grad]
    })
}
