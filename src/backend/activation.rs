//! The activations of Burn's contract.

use super::contract::prelude::*;

/// Activations that are not in the elementwise table. Burn composes `prelu` and `softmin`.
macro_rules! activation_contract {
    ($apply:ident) => {
        $apply! {
            relu(tensor: F) -> F =
                elementwise::clamp(&rows::float_clamp_min, tensor, &[ScalarValue::Float(0.0)]),
                else cpu;
            softmax(tensor: Uncast, dim: Axis) -> F under Full gradient softmax =
                attention_pattern::softmax_or_weights(tensor, dim);
            log_softmax(tensor: F, dim: Axis) -> F under Full gradient softmax =
                softmax::log_softmax(tensor, dim);
        }
    };
}

/// Methods without a row: written out, or left to Burn.
#[cfg(feature = "internals")]
macro_rules! activation_written {
    ($apply:ident) => {
        $apply! {
            composed prelu;
            composed softmin;
        }
    };
}

pub(crate) use activation_contract;
#[cfg(feature = "internals")]
pub(crate) use activation_written;

impl ActivationOps<Wgsl> for Wgsl {
    crate::kernels::ops::table::activation_rows!(elementwise_methods);
    activation_contract!(methods);
}
