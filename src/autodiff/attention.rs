//! Attention, also if the program composes it of products and a softmax.

#![allow(
    clippy::extra_unused_type_parameters,
    reason = "the methods of the contract call all functions alike"
)]

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::VecDeque;

use burn_autodiff::Autodiff as BurnAutodiff;
use burn_autodiff::checkpoint::strategy::{CheckpointStrategy, NoCheckpointing};
use burn_backend::TensorMetadata;
use burn_backend::backend::AutodiffBackend;
use burn_backend::ops::attention::attention_fallback;
use burn_backend::ops::{FloatTensorOps, ModuleOps};

use super::Autodiff;
use super::cast::cast;
use super::kinds::{Attention, B, F, OptB, OptF, Scalar};
use super::node::node;
use super::notes::{Identity, Input};
use crate::autocast::rules::{Role, Rule};
use crate::backend::attention_pattern::{self, ComposedAttention};
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

/// The nodes of the product that is the scores of attention.
#[derive(Debug, Clone)]
struct Scores {
    query: Input,
    /// `[batch, heads, width, keys]`.
    transposed_key: Input,
}

/// The maximum number of notes: of a product, its scale, two masks, and weights, twice.
const MAX_NOTES: usize = 10;

thread_local! {
    /// Notes of scores and weights of attention, the latest first.
    static NOTES: RefCell<VecDeque<(Identity, Scores)>> = const { RefCell::new(VecDeque::new()) };
}

/// Forgets all notes, which keep tensors.
pub(super) fn clear() {
    drop(NOTES.take());
}

/// Forgets the notes of the scores of a query.
fn forget(query: Identity) {
    let is_of_query = |(_, scores): &(Identity, Scores)| scores.query.identity() == query;
    let forgotten: VecDeque<_> = NOTES.with_borrow_mut(|notes| {
        let (forgotten, kept) = std::mem::take(notes).into_iter().partition(is_of_query);
        *notes = kept;
        forgotten
    });
    // Not while the list is borrowed.
    drop(forgotten);
}

fn noted(tensor: &F) -> Option<Scores> {
    let identity = Identity::of(tensor);
    NOTES.with_borrow(|notes| {
        let found = notes.iter().find(|(noted, _)| *noted == identity);
        found.map(|(_, scores)| scores.clone())
    })
}

/// Notes that a tensor is scores or weights.
fn note(tensor: F, scores: Scores) -> F {
    let oldest = NOTES.with_borrow_mut(|notes| {
        notes.push_front((Identity::of(&tensor), scores));
        if notes.len() > MAX_NOTES { notes.pop_back() } else { None }
    });
    // Not while the list is borrowed.
    drop(oldest);
    tensor
}

/// Computes an op of scores, whose result is scores, too.
pub(super) fn follow(scores: F, op: impl FnOnce(F) -> F) -> F {
    match noted(&scores) {
        Some(noted) => note(op(scores), noted),
        None => op(scores),
    }
}

/// Computes the softmax of a tensor: weights, if it is scores.
pub(super) fn weights(tensor: F, op: impl FnOnce(F) -> F) -> F {
    match noted(&tensor) {
        Some(noted) => note(op(tensor), noted),
        // Their gradient needs them in any case.
        None if tensor.is_tracked() => attention_pattern::without(|| op(tensor)),
        None => op(tensor),
    }
}

pub(super) fn float_mul_scalar<C>(lhs: F, rhs: Scalar, op: fn(F, Scalar) -> F) -> F {
    follow(lhs, |lhs| op(lhs, rhs))
}

pub(super) fn float_div_scalar<C>(lhs: F, rhs: Scalar, op: fn(F, Scalar) -> F) -> F {
    follow(lhs, |lhs| op(lhs, rhs))
}

pub(super) fn float_mask_fill<C>(
    tensor: F,
    mask: B,
    value: Scalar,
    op: fn(F, B, Scalar) -> F,
) -> F {
    follow(tensor, |tensor| op(tensor, mask, value))
}

pub(super) fn float_matmul<C: CheckpointStrategy>(lhs: F, rhs: F, op: fn(F, F) -> F) -> F {
    if !lhs.is_tracked() && !rhs.is_tracked() {
        return op(lhs, rhs);
    }
    if attention_pattern::are_weights(&lhs.primitive) {
        return of_weights::<C>(&lhs, &rhs)
            .unwrap_or_else(|| attention_pattern::without(|| op(lhs, rhs)));
    }
    // Strategies that compute results again decide by themselves what is kept.
    let may_be_scores = lhs.primitive.rank() == 4
        && lhs.primitive.is_on_gpu()
        && TypeId::of::<C>() == TypeId::of::<NoCheckpointing>();
    let scores =
        may_be_scores.then(|| Scores { query: Input::new(&lhs), transposed_key: Input::new(&rhs) });
    let result = op(lhs, rhs);
    match scores.filter(|_| attention_pattern::are_scores(&result.primitive)) {
        Some(scores) => note(result, scores),
        None => result,
    }
}

/// Returns attention that the program composes, with one gradient for all of its ops.
fn of_weights<C: CheckpointStrategy>(weights: &F, value: &F) -> Option<F> {
    let Scores { query, transposed_key } = noted(weights)?;
    let of_scores = query.identity();
    let (query, transposed_key) = (query.tensor()?, transposed_key.tensor()?);
    let composed = ComposedAttention::of(&weights.primitive, &value.primitive)?;
    forget(of_scores);
    let key = Autodiff::<Wgsl, C>::float_swap_dims(transposed_key, 2, 3);
    let mut inputs = [query, key, value.clone()];
    cast::<C>(Rule::Lower, &mut |f| inputs.iter_mut().for_each(|input| f(input, Role::Operand)));
    let dtype = inputs[2].dtype();
    let operands = inputs.each_ref().map(|input| input.primitive.clone());
    let (output, log_sums) = composed.compute(operands);
    let output = Wgsl::float_cast(output, dtype.into());
    let state = (composed, output.clone(), log_sums);
    Some(node::<C, _, 3, 3>(inputs, output, state, |[query, key, value], state, grad| {
        let (composed, output, log_sums) = state;
        let types = [query.dtype(), key.dtype(), value.dtype()];
        let [of_query, of_key, of_value] =
            composed.gradients([query, key, value, output, log_sums, grad]);
        let [query, key, value] = types;
        [(of_query, query), (of_key, key), (of_value, value)]
            .map(|(gradient, dtype)| Wgsl::float_cast(gradient, dtype.into()))
    }))
}
