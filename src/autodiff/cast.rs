//! Conversions of operands under autocast: ops of the graph, whose gradients convert back.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::{Autodiff as BurnAutodiff, NodeId};
use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorMetadata};
use burn_std::Shape;

use super::kinds::F;
use super::node::node;
use crate::autocast::{Operands, at_end};
use crate::backend::{Wgsl, WgslTensor};

thread_local! {
    /// The 16-bit copies of parameters, by their nodes. A node never has another value.
    static COPIES: RefCell<HashMap<(NodeId, DType), WgslTensor>> = RefCell::new(HashMap::new());
    static CONVERTED: Cell<bool> = const { Cell::new(false) };
    /// The shapes and types of the copies since the first open scope began.
    static COPIED: RefCell<HashSet<(Shape, DType)>> = RefCell::new(HashSet::new());
}

/// Returns whether operands were converted since the last call.
pub(super) fn take_converted() -> bool {
    CONVERTED.take()
}

/// Frees the copies of parameters.
pub(super) fn clear_copies() {
    drop(COPIES.take());
}

/// Frees the copies at the end of the last scope.
fn end() {
    clear_copies();
    drop(COPIED.take());
}

/// Copies a new parameter if one of its shape was copied before, as in the step of an optimizer in a scope. The
/// copies are pending until the first is used, and one launch computes them with the parameters themselves.
pub(super) fn copy_ahead(parameter: &F) {
    let shape = parameter.primitive.shape();
    let targets = COPIED.with_borrow(|copied| {
        let of_shape = copied.iter().filter(|(copied, _)| *copied == shape);
        of_shape.map(|(_, target)| *target).collect::<Vec<_>>()
    });
    for target in targets {
        let copy = Wgsl::float_cast(parameter.primitive.clone(), target.into());
        COPIES.with_borrow_mut(|copies| copies.insert((parameter.node.id, target), copy));
    }
}

/// Calls a function on each float tensor of an op, and tells whether it is the bias of a product.
type Each<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&mut F, bool));

/// Converts the float operands of an op by the rules of autocast.
pub(super) fn cast<C: CheckpointStrategy>(op: &'static str, each: Each<'_>) {
    let mut seen = Operands::default();
    each(&mut |tensor, is_bias| {
        if !is_bias {
            seen.see(tensor.primitive.device(), tensor.dtype());
        }
    });
    let target = seen.cast_types(op).map(|[target, _]| target);
    let of_product = target.or(seen.widest());
    each(&mut |tensor, is_bias| match is_bias {
        // It stays as it is. Its gradient has the type of the product.
        true if of_product.is_some_and(|dtype| dtype != tensor.dtype()) => {
            *tensor = converted_back::<C>(tensor, tensor.primitive.clone());
        }
        false if let Some(target) = target.filter(|target| *target != tensor.dtype()) => {
            *tensor = converted::<C>(tensor, target);
        }
        _ => {}
    });
}

/// Converts a tensor. Copies of parameters are kept for their next use. Each use has a node of its own:
/// gradients of several uses add up in the type of the parameter.
fn converted<C: CheckpointStrategy>(tensor: &F, target: DType) -> F {
    let convert = || Wgsl::float_cast(tensor.primitive.clone(), target.into());
    let is_parameter = BurnAutodiff::<Wgsl, C>::float_is_require_grad(tensor);
    let copy = match is_parameter && at_end(end) {
        true => {
            COPIED.with_borrow_mut(|copied| copied.insert((tensor.primitive.shape(), target)));
            COPIES.with_borrow_mut(|copies| {
                copies.entry((tensor.node.id, target)).or_insert_with(convert).clone()
            })
        }
        false => convert(),
    };
    converted_back::<C>(tensor, copy)
}

/// Adds a node from a tensor to its value in another type, which converts gradients back.
fn converted_back<C: CheckpointStrategy>(tensor: &F, value: WgslTensor) -> F {
    CONVERTED.set(true);
    let dtype = tensor.dtype();
    node::<C, _, 1, 0>([tensor.clone()], value, dtype, |[], dtype, grad| {
        [Wgsl::float_cast(grad, dtype.into())]
    })
}
