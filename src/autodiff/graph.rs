//! Threads that share a network, and nodes that wait for a backward pass.
//!
//! Burn's autodiff joins the graphs of all operands of an op, so that threads that compute with the same parameters,
//! as those of clones of a network, share a graph. There, an op that joins graphs and a backward pass can wait for each
//! other, and a backward pass removes the nodes of other threads. So a thread never computes with a parameter that
//! another thread has computed with: it takes a node of its own in the place of the parameter's, and its backward pass
//! gives the gradient of that node to the parameter. Each thread has a graph of its own, and none waits for another.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use burn_autodiff::grads::Gradients;
use burn_autodiff::{Autodiff as BurnAutodiff, NodeId};
use burn_backend::TensorMetadata;
use burn_backend::backend::AutodiffBackend;
use burn_backend::ops::FloatTensorOps;
use burn_std::Shape;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::kinds::F;
use crate::backend::Wgsl;
use crate::memory::waiting;

thread_local! {
    /// Whether this thread computes gradients.
    static IN_BACKWARD: Cell<bool> = const { Cell::new(false) };
    /// The number of this thread.
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    /// The nodes that this thread has in the place of parameters that belong to others.
    static OWN_NODES: RefCell<FxHashMap<NodeId, OwnNode>> = RefCell::default();
}

/// The thread that computed first with each parameter.
static OWNERS: Mutex<Option<Owners>> = Mutex::new(None);

#[derive(Default)]
struct Owners {
    threads: FxHashMap<NodeId, (Weak<NodeId>, u64)>,
    /// The number of parameters at which dropped ones are removed.
    pruned_at: usize,
}

impl Owners {
    /// Returns the owner of a parameter, which is this thread if it had none.
    fn of(&mut self, parameter: &F) -> u64 {
        if self.threads.len() >= self.pruned_at {
            self.threads.retain(|_, (node, _)| node.strong_count() > 0);
            self.pruned_at = (2 * self.threads.len()).max(1024);
        }
        let this_thread = || (Arc::downgrade(&parameter.rc), THREAD.with(|thread| *thread));
        self.threads.entry(parameter.node.id).or_insert_with(this_thread).1
    }
}

/// A node in the place of a parameter's.
struct OwnNode {
    parameter: Weak<NodeId>,
    /// Without the elements: the parameter has them.
    node: F,
}

/// Returns an operand with a node of this thread: another one, if it is a parameter of another thread.
pub(crate) fn local(operand: F) -> F {
    // Nodes with parents are results of this thread.
    if operand.node.requirement.is_none() || !operand.node.parents.is_empty() {
        return operand;
    }
    let owner = OWNERS.lock().get_or_insert_default().of(&operand);
    if owner == THREAD.with(|thread| *thread) {
        return operand;
    }
    let known =
        OWN_NODES.with_borrow(|nodes| nodes.get(&operand.node.id).map(|own| own.node.clone()));
    let mut local = known.unwrap_or_else(|| own_node(&operand));
    local.primitive = operand.primitive;
    local
}

/// Adds a node in the place of a parameter's.
fn own_node(parameter: &F) -> F {
    let primitive = &parameter.primitive;
    let none = Wgsl::float_empty(Shape::from([0]), &primitive.device(), primitive.dtype().into());
    let node = BurnAutodiff::<Wgsl>::from_inner(none);
    let node = BurnAutodiff::<Wgsl>::float_set_require_grad(node, true);
    let own = OwnNode { parameter: Arc::downgrade(&parameter.rc), node: node.clone() };
    OWN_NODES.with_borrow_mut(|nodes| nodes.insert(parameter.node.id, own));
    node
}

/// Computes gradients, and gives those of nodes in the places of parameters to the parameters.
///
/// # Panics
///
/// Panics if this thread is in a backward pass: Burn's would wait for itself.
pub(super) fn backward(root: F, compute: impl FnOnce(F) -> Gradients) -> Gradients {
    /// Ends the backward pass, also if it panics.
    struct Pass;
    impl Drop for Pass {
        fn drop(&mut self) {
            IN_BACKWARD.set(false);
        }
    }
    assert!(
        !IN_BACKWARD.get(),
        "backward: it was called by the gradient of another op, which holds the graph until that gradient is known; \
         compute the inner gradient without `Autodiff`, or after the first backward pass"
    );
    IN_BACKWARD.set(true);
    let pass = Pass;
    let mut gradients = compute(local(root));
    drop(pass);
    OWN_NODES.with_borrow_mut(|nodes| {
        for (parameter, own) in &*nodes {
            if let Some(gradient) = gradients.remove::<Wgsl>(&own.node) {
                gradients.register::<Wgsl>(*parameter, gradient);
            }
        }
        nodes.retain(|_, own| own.parameter.strong_count() > 0);
    });
    gradients
}

/// Counts the node of a result, which waits for a backward pass.
pub(super) fn registered(result: F) -> F {
    if !result.node.requirement.is_none() {
        let node: Weak<NodeId> = Arc::downgrade(&result.rc);
        waiting::add(node);
    }
    result
}
