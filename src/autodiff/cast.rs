//! Conversions of operands under autocast: ops of the graph, whose gradients convert back.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::{Autodiff as BurnAutodiff, NodeId};
use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorMetadata};
use burn_std::Shape;

use super::kinds::F;
use super::node::{State, node};
use crate::autocast::rules::{Role, Rule};
use crate::autocast::{FloatOperands, at_end, off};
use crate::backend::{Wgsl, WgslTensor};

/// What a copy is of: a node, which never has another value, and its type.
type Key = (NodeId, DType);

/// Copies of other tensors than parameters that are kept. The projections of attention, for example, read one
/// tensor three times.
const RECENT: usize = 4;

/// Whether an operand with a gradient was ever converted. Backward passes can run on other threads than their
/// forward passes, and in any number.
static CONVERTED: AtomicBool = AtomicBool::new(false);

/// The counts of a parameter that the graph holds until its next backward pass.
const GRAPH: usize = 1;

/// The 16-bit copy of a parameter.
struct Copied {
    /// The count of the parameter's owners.
    of: Weak<NodeId>,
    copy: WgslTensor,
}

thread_local! {
    /// The 16-bit copies of parameters.
    static COPIES: RefCell<HashMap<Key, Copied>> = RefCell::new(HashMap::new());
    /// The latest copies of other tensors.
    static LATEST: RefCell<VecDeque<(Key, WgslTensor)>> = const { RefCell::new(VecDeque::new()) };
    /// The shapes and types of the copies since the first open scope began.
    static COPIED: RefCell<HashSet<(Shape, DType)>> = RefCell::new(HashSet::new());
}

/// Returns whether the program has converted operands with gradients.
pub(super) fn has_converted() -> bool {
    CONVERTED.load(Ordering::Relaxed)
}

/// Frees the copies.
pub(super) fn clear_copies() {
    drop((COPIES.take(), LATEST.take()));
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
    if targets.is_empty() || parameter.primitive.is_foreign() {
        return;
    }
    free_dead(GRAPH);
    for target in targets {
        let copied = Copied::new(parameter, target);
        COPIES.with_borrow_mut(|copies| copies.insert((parameter.node.id, target), copied));
    }
}

/// Frees the copies of parameters that have no more than so many owners.
fn free_dead(owners: usize) {
    let is_dead = |copied: &Copied| copied.of.strong_count() <= owners;
    let dead: Vec<_> =
        COPIES.with_borrow_mut(|copies| copies.extract_if(|_, copied| is_dead(copied)).collect());
    // Not while they are borrowed.
    drop(dead);
}

/// Calls a function on each float tensor of an op.
type Each<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&mut F, Role));

/// Converts the float operands of an op by its rule of autocast. Returns the type of the result if that of the operands
/// is another: see [`narrowed`].
pub(super) fn cast<C: CheckpointStrategy>(rule: Rule, each: Each<'_>) -> Option<DType> {
    let mut seen = FloatOperands::default();
    each(&mut |tensor, role| {
        if role != Role::Bias {
            let primitive = &tensor.primitive;
            seen.see(rule, primitive.device(), primitive.dtype(), || primitive.elements());
        }
    });
    let types = seen.cast_types(rule);
    let target = types.map(|[target, _]| target);
    let of_product = target.or(seen.widest());
    each(&mut |tensor, role| {
        let dtype = tensor.dtype();
        let has_gradient = !tensor.node.requirement.is_none();
        let differs = of_product != Some(dtype);
        if differs && has_gradient {
            CONVERTED.store(true, Ordering::Relaxed);
        }
        match target.filter(|target| *target != dtype && role != Role::Bias) {
            Some(target) => *tensor = converted::<C>(tensor, target),
            // The gradients of weights and biases are f32 or of the type of the product.
            None if has_gradient && role != Role::Operand && (differs || is_half(dtype)) => {
                *tensor = converted_back::<C>(tensor, tensor.primitive.clone());
            }
            None => {}
        }
    });
    types
        .filter(|_| rule == Rule::Product)
        .and_then(|[target, result]| (target != result).then_some(result))
}

/// Computes a product of f32 operands under autocast, and converts its result to `dtype`, if there is one.
pub(super) fn narrowed<C: CheckpointStrategy>(
    dtype: Option<DType>,
    product: impl FnOnce() -> F,
) -> F {
    let Some(dtype) = dtype else { return product() };
    let result = {
        let _off = off();
        product()
    };
    if result.is_tracked() {
        CONVERTED.store(true, Ordering::Relaxed);
    }
    let value = Wgsl::float_cast(result.primitive.clone(), dtype.into());
    converted_back::<C>(&result, value)
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Converts a tensor. Copies are kept for their next use: all of parameters, and the latest of other tensors. Each
/// use has a node of its own: gradients of several uses add up in the type of the tensor.
fn converted<C: CheckpointStrategy>(tensor: &F, target: DType) -> F {
    let convert = || Wgsl::float_cast(tensor.primitive.clone(), target.into());
    let key = (tensor.node.id, target);
    // Kernels read f32 values of 16-bit tensors without a copy in memory.
    let copy = if tensor.primitive.is_foreign() || !is_half(target) || !at_end(end) {
        convert()
    } else if BurnAutodiff::<Wgsl, C>::float_is_require_grad(tensor) {
        COPIED.with_borrow_mut(|copied| copied.insert((tensor.primitive.shape(), target)));
        let known = COPIES.with_borrow(|copies| copies.get(&key).map(|known| known.copy.clone()));
        known.unwrap_or_else(|| {
            let copied = Copied::new(tensor, target);
            let copy = copied.copy.clone();
            free_dead(0);
            COPIES.with_borrow_mut(|copies| copies.insert(key, copied));
            copy
        })
    } else {
        let latest = LATEST.with_borrow(|latest| {
            let found = latest.iter().find(|(of, _)| *of == key);
            found.map(|(_, copy)| copy.clone())
        });
        latest.unwrap_or_else(|| {
            let copy = convert();
            keep(tensor, copy.clone());
            copy
        })
    };
    converted_back::<C>(tensor, copy)
}

impl Copied {
    fn new(parameter: &F, target: DType) -> Self {
        let copy = Wgsl::float_cast(parameter.primitive.clone(), target.into());
        Self { of: Arc::downgrade(&parameter.rc), copy }
    }
}

/// Keeps the copy of a tensor for its next use, which is near.
fn keep(tensor: &F, copy: WgslTensor) {
    LATEST.with_borrow_mut(|latest| {
        latest.truncate(RECENT - 1);
        latest.push_front(((tensor.node.id, copy.dtype()), copy));
    });
}

/// Computes an op of one tensor in f32 under autocast. If the tensor is bf16, the op's gradient reads a bf16
/// copy of the result, which the next product reads too: the result itself need not be kept. In f16, results below
/// 3e-8 would be 0, and their gradients too. `op` takes the tensor in f32 and returns the result, and `gradient`
/// computes the gradient from the copy.
pub(super) fn keeping_16_bits<C: CheckpointStrategy, S: State>(
    rule: Rule,
    mut tensor: F,
    op: impl FnOnce(WgslTensor) -> WgslTensor,
    settings: S,
    gradient: fn([WgslTensor; 0], (WgslTensor, S), WgslTensor) -> [WgslTensor; 1],
) -> F {
    let narrow = tensor.dtype();
    cast::<C>(rule, &mut |f| f(&mut tensor, Role::Operand));
    let output = op(tensor.primitive.clone());
    let is_narrowed = narrow == DType::BF16 && output.dtype() == DType::F32 && at_end(end);
    let kept = match is_narrowed {
        true => Wgsl::float_cast(output.clone(), narrow.into()),
        false => output.clone(),
    };
    let result = node::<C, _, 1, 0>([tensor], output, (kept.clone(), settings), gradient);
    if is_narrowed {
        keep(&result, kept);
    }
    result
}

/// Adds a node from a tensor to its value in another type, which converts gradients back.
fn converted_back<C: CheckpointStrategy>(tensor: &F, value: WgslTensor) -> F {
    let dtype = tensor.dtype();
    node::<C, _, 1, 0>([tensor.clone()], value, dtype, |[], dtype, grad| {
        [Wgsl::float_cast(grad, dtype.into())]
    })
}
