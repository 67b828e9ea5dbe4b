//! Attention.

use burn_autodiff::Autodiff as BurnAutodiff;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::TensorMetadata;
use burn_backend::backend::AutodiffBackend;
use burn_backend::ops::attention::attention_fallback;
use burn_backend::ops::{FloatTensorOps, ModuleOps};

use super::Autodiff;
use super::kinds::{Attention, B, F, OptB, OptF};
use super::node::node;
use crate::backend::{Wgsl, WgslTensor};

/// What the gradient needs besides queries, keys and values.
#[derive(Debug, Clone)]
struct State {
    mask: Option<B>,
    bias: Option<WgslTensor>,
    output: WgslTensor,
    log_sums: WgslTensor,
    options: Attention,
}

pub(super) fn attention<C: CheckpointStrategy>(
    query: F,
    key: F,
    value: F,
    mask: OptB,
    attn_bias: OptF,
    options: Attention,
) -> F {
    if attn_bias.as_ref().is_some_and(F::is_tracked) {
        // The kernels have no gradient of the bias.
        return attention_fallback::<Autodiff<Wgsl, C>>(
            query, key, value, mask, attn_bias, options,
        );
    }
    let inputs = [query, key, value];
    let [query, key, value] = inputs.each_ref().map(|input| input.primitive.clone());
    let bias = attn_bias.map(|bias| bias.primitive);
    if !inputs.iter().any(F::is_tracked) {
        let output = Wgsl::attention(query, key, value, mask, bias, options);
        return BurnAutodiff::<Wgsl, C>::from_inner(output);
    }
    let dtype = query.dtype();
    let (output, log_sums) =
        Wgsl::attention_with_log_sums(query, key, value, mask.clone(), bias.clone(), options);
    let output = Wgsl::float_cast(output, dtype.into());
    let state = State { mask, bias, output: output.clone(), log_sums, options };
    node::<C, _, 3, 3>(inputs, output, state, |[query, key, value], state, grad| {
        let State { mask, bias, output, log_sums, options } = state;
        let dtype = query.dtype();
        let grads = Wgsl::attention_backward(
            query, key, value, mask, bias, output, log_sums, grad, options,
        );
        <[WgslTensor; 3]>::from(grads).map(|grad| Wgsl::float_cast(grad, dtype.into()))
    })
}
