//! Threads that share a network, and nodes that wait for a backward pass.
//!
//! Burn's autodiff joins the graphs of all operands of an op, so that threads that compute with the same parameters,
//! as those of clones of a network, share a graph. There, an op that joins graphs and a backward pass can wait for each
//! other, and a backward pass removes the nodes of other threads. So a thread never computes with a parameter that
//! another thread has computed with: it takes a node of its own in the place of the parameter's, and its backward pass
//! gives the gradient of that node to the parameter. Each thread has a graph of its own, and none waits for another.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

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
    static OWN_NODES: RefCell<Pruned<F>> = RefCell::default();
}

/// The thread that computed first with each parameter.
static OWNERS: LazyLock<Mutex<Pruned<u64>>> = LazyLock::new(Mutex::default);

/// The parameter of each node that a thread has in its place. A backward pass can run in another thread than the ops.
static PARAMETERS: LazyLock<Mutex<Pruned<(NodeId, F)>>> = LazyLock::new(Mutex::default);

/// What is known about parameters that exist.
struct Pruned<T> {
    of: FxHashMap<NodeId, (Weak<NodeId>, T)>,
    /// The number of entries at which those of dropped parameters are removed.
    at: usize,
}

impl<T> Default for Pruned<T> {
    fn default() -> Self {
        Self { of: FxHashMap::default(), at: 1024 }
    }
}

impl<T> Pruned<T> {
    /// Remembers something about a node for as long as a parameter exists.
    fn insert(&mut self, node: NodeId, parameter: &F, value: T) {
        if self.of.len() >= self.at {
            self.of.retain(|_, (parameter, _)| parameter.strong_count() > 0);
            self.at = (2 * self.of.len()).max(1024);
        }
        self.of.insert(node, (Arc::downgrade(&parameter.rc), value));
    }

    fn get(&self, node: NodeId) -> Option<&T> {
        self.of.get(&node).map(|(_, value)| value)
    }
}

/// Returns an operand with a node of this thread: another one, if it is a parameter of another thread.
pub(crate) fn local(operand: F) -> F {
    // Nodes with parents are results.
    if operand.node.requirement.is_none() || !operand.node.parents.is_empty() {
        return operand;
    }
    let (id, thread) = (operand.node.id, THREAD.with(|thread| *thread));
    let mut owners = OWNERS.lock();
    match owners.get(id) {
        Some(owner) if *owner != thread => {}
        Some(_) => return operand,
        None => {
            owners.insert(id, &operand, thread);
            return operand;
        }
    }
    drop(owners);
    let known = OWN_NODES.with_borrow(|nodes| nodes.get(id).cloned());
    let mut local = known.unwrap_or_else(|| own_node(&operand));
    local.primitive = operand.primitive;
    local
}

/// Adds a node in the place of a parameter's. It has none of its elements.
fn own_node(parameter: &F) -> F {
    let primitive = &parameter.primitive;
    let none = Wgsl::float_empty(Shape::from([0]), &primitive.device(), primitive.dtype().into());
    let node = BurnAutodiff::<Wgsl>::from_inner(none);
    let node = BurnAutodiff::<Wgsl>::float_set_require_grad(node, true);
    let id = parameter.node.id;
    OWN_NODES.with_borrow_mut(|nodes| nodes.insert(id, parameter, node.clone()));
    PARAMETERS.lock().insert(node.node.id, parameter, (id, node.clone()));
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
    for (_, (parameter, own)) in PARAMETERS.lock().of.values() {
        if let Some(gradient) = gradients.remove::<Wgsl>(own) {
            gradients.register::<Wgsl>(*parameter, gradient);
        }
    }
    gradients
}

/// Returns a reference to the node of an operand, to hold until an op has added its own. Otherwise a backward pass of
/// another thread takes it for a node that nothing needs.
pub(super) fn kept(operand: &F) -> Option<Arc<NodeId>> {
    (!operand.node.requirement.is_none()).then(|| operand.rc.clone())
}

/// Counts the node of a result, which waits for a backward pass.
pub(super) fn registered(result: F) -> F {
    if !result.node.requirement.is_none() {
        let node: Weak<NodeId> = Arc::downgrade(&result.rc);
        waiting::add(node);
    }
    result
}
