//! The contract's activations.

use super::contract::prelude::*;

/// Activations that are not in the elementwise table. `prelu` and `softmin` are Burn's compositions.
macro_rules! activation_contract {
    ($apply:ident) => {
        $apply! {
            relu(tensor: F) -> F = elementwise::limit(&rows::float_clamp_min, tensor, &[Literal::Float(0.0)]), else cpu::clamp(tensor, 0.0, f64::INFINITY);
            softmax(tensor: F, dim: Size) -> F = softmax::softmax(tensor, dim);
            log_softmax(tensor: F, dim: Size) -> F = softmax::log_softmax(tensor, dim);
        }
    };
}

pub(crate) use activation_contract;

impl ActivationOps<Wgsl> for Wgsl {
    crate::kernels::table::activation_rows!(elementwise_methods);
    activation_contract!(methods);
}
