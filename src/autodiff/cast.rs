//! Conversions of operands under autocast: ops of the graph, whose gradients convert back.

use std::cell::RefCell;
use std::collections::HashMap;

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::{Autodiff as BurnAutodiff, NodeId};
use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorMetadata};

use super::kinds::F;
use crate::autocast::{Operands, at_end};
use crate::backend::Wgsl;

thread_local! {
    /// The 16-bit copies of parameters, by their nodes. A node never has another value.
    static COPIES: RefCell<HashMap<(NodeId, DType), F>> = RefCell::new(HashMap::new());
}

/// Frees the copies of parameters.
pub(super) fn forget_casts() {
    COPIES.with_borrow_mut(HashMap::clear);
}

/// Calls a function on each float tensor of an op.
type Each<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&mut F));

/// Converts the float operands of an op as autocast asks.
pub(super) fn cast<C: CheckpointStrategy>(op: &'static str, each: Each<'_>) {
    let mut seen = Operands::default();
    each(&mut |tensor| seen.see(tensor.primitive.device(), tensor.dtype()));
    let Some([target, _]) = seen.cast_types(op) else { return };
    each(&mut |tensor| {
        if tensor.dtype() != target {
            *tensor = converted::<C>(tensor, target);
        }
    });
}

/// Converts a tensor. Copies of parameters are kept for their next use.
fn converted<C: CheckpointStrategy>(tensor: &F, target: DType) -> F {
    let convert = || BurnAutodiff::<Wgsl, C>::float_cast(tensor.clone(), target.into());
    if !BurnAutodiff::<Wgsl, C>::float_is_require_grad(tensor) {
        return convert();
    }
    let key = (tensor.node.id, target);
    if let Some(copy) = COPIES.with_borrow(|copies| copies.get(&key).cloned()) {
        return copy;
    }
    let copy = convert();
    at_end(forget_casts);
    COPIES.with_borrow_mut(|copies| copies.insert(key, copy.clone()));
    copy
}
