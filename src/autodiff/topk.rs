//! The largest elements.

use burn_autodiff::Autodiff as BurnAutodiff;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::get_device_settings;
use burn_backend::ops::FloatTensorOps;

use super::kinds::{Axis, F, Size};
use crate::backend::Wgsl;

/// Gathers the elements at the indices of the largest.
pub(super) fn float_topk<C: CheckpointStrategy>(tensor: F, dim: Axis, k: Size) -> F {
    let dtype = get_device_settings::<Wgsl>(&tensor.primitive.device()).int_dtype;
    let indices = Wgsl::float_argtopk(tensor.primitive.clone(), dim, k, dtype);
    BurnAutodiff::<Wgsl, C>::float_gather(dim, tensor, indices)
}
