//! The largest elements.

use burn_autodiff::Autodiff as BurnAutodiff;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::backend::AutodiffBackend;
use burn_backend::get_device_settings;
use burn_backend::ops::FloatTensorOps;

use super::kinds::{Axis, F, Size};
use crate::backend::Wgsl;

/// Gathers the elements at the indices of the largest, whose gradient Burn computes.
pub(super) fn float_topk<C: CheckpointStrategy>(tensor: F, dim: Axis, k: Size) -> F {
    if !tensor.is_tracked() {
        let largest = Wgsl::float_topk(tensor.primitive, dim, k);
        return BurnAutodiff::<Wgsl, C>::from_inner(largest);
    }
    let dtype = get_device_settings::<Wgsl>(&tensor.primitive.device()).int_dtype;
    let indices = Wgsl::float_argtopk(tensor.primitive.clone(), dim, k, dtype);
    BurnAutodiff::<Wgsl, C>::float_gather(dim, tensor, indices)
}
