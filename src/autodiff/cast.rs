//! Conversions of operands under autocast: ops of the graph, whose gradients convert back.

use std::cell::RefCell;
use std::collections::HashMap;

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::{Autodiff as BurnAutodiff, NodeId};
use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorMetadata};

use super::kinds::F;
use super::node::node;
use crate::autocast::{Operands, at_end};
use crate::backend::{Wgsl, WgslTensor};

thread_local! {
    /// The 16-bit copies of parameters, by their nodes. A node never has another value.
    static COPIES: RefCell<HashMap<(NodeId, DType), WgslTensor>> = RefCell::new(HashMap::new());
}

/// Frees the copies of parameters.
pub(super) fn clear_copies() {
    drop(COPIES.take());
}

/// Calls a function on each float tensor of an op.
type Each<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&mut F));

/// Converts the float operands of an op by the rules of autocast.
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

/// Converts a tensor. Copies of parameters are kept for their next use. Each use has a node of its own:
/// gradients of several uses add up in the type of the parameter.
fn converted<C: CheckpointStrategy>(tensor: &F, target: DType) -> F {
    let convert = || Wgsl::float_cast(tensor.primitive.clone(), target.into());
    let is_parameter = BurnAutodiff::<Wgsl, C>::float_is_require_grad(tensor);
    let copy = match is_parameter && at_end(clear_copies) {
        true => COPIES.with_borrow_mut(|copies| {
            copies.entry((tensor.node.id, target)).or_insert_with(convert).clone()
        }),
        false => convert(),
    };
    let dtype = tensor.dtype();
    node::<C, _, 1, 0>([tensor.clone()], copy, dtype, |[], dtype, grad| {
        [Wgsl::float_cast(grad, dtype.into())]
    })
}
