//! Threads that share a network, and nodes that wait for a backward pass.
//!
//! Burn's autodiff joins the graphs of all operands of an op, so that threads that compute with the same parameters,
//! as those of clones of a network, share a graph. There, an op that joins graphs and a backward pass can wait for each
//! other for ever, and a backward pass removes the nodes of other threads. So a thread never computes with a parameter
//! that another thread has computed with: it takes a node of its own in the place of the parameter's, and a backward
//! pass gives the gradient of that node to the parameter. Each thread has a graph of its own.

use std::cell::Cell;
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
use crate::backend::{Wgsl, WgslTensor};
use crate::memory::waiting;

thread_local! {
    /// Whether this thread computes gradients.
    static IN_BACKWARD: Cell<bool> = const { Cell::new(false) };
    /// The number of this thread.
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

static PARAMETERS: LazyLock<Mutex<Parameters>> = LazyLock::new(Mutex::default);

/// The parameters that threads compute with.
struct Parameters {
    of: FxHashMap<NodeId, Parameter>,
    /// The number at which dropped ones are removed.
    pruned_at: usize,
    /// Whether a thread has a node in the place of a parameter's.
    are_shared: bool,
}

/// A parameter that a thread computes with.
struct Parameter {
    node: Weak<NodeId>,
    /// The thread that computed with it first, whose graph has the parameter's node.
    owner: u64,
    /// Other threads, and the nodes that they have in its place. These have no elements.
    in_threads: Vec<(u64, F)>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { of: FxHashMap::default(), pruned_at: 1024, are_shared: false }
    }
}

impl Parameters {
    /// Returns a parameter, which belongs to this thread if it is new.
    fn get(&mut self, operand: &F, thread: u64) -> &mut Parameter {
        if self.of.len() >= self.pruned_at {
            self.of.retain(|_, parameter| parameter.node.strong_count() > 0);
            self.pruned_at = (2 * self.of.len()).max(1024);
        }
        let node = || Arc::downgrade(&operand.rc);
        let new = || Parameter { node: node(), owner: thread, in_threads: Vec::new() };
        self.of.entry(operand.node.id).or_insert_with(new)
    }
}

/// Returns an operand with a node of this thread: another one, if it is a parameter of another thread.
pub(crate) fn local(operand: F) -> F {
    // Nodes with parents are results.
    if operand.node.requirement.is_none() || !operand.node.parents.is_empty() {
        return operand;
    }
    let thread = THREAD.with(|thread| *thread);
    let mut parameters = PARAMETERS.lock();
    let parameter = parameters.get(&operand, thread);
    if parameter.owner == thread {
        return operand;
    }
    let known = parameter.in_threads.iter().find(|(other, _)| *other == thread);
    let mut local = match known {
        Some((_, node)) => node.clone(),
        None => {
            let node = node_in_place_of(&operand.primitive);
            parameter.in_threads.push((thread, node.clone()));
            parameters.are_shared = true;
            node
        }
    };
    local.primitive = operand.primitive;
    local
}

/// Adds a node without elements to the graph of this thread.
pub(super) fn node_in_place_of(parameter: &WgslTensor) -> F {
    let device = parameter.device();
    let none = Wgsl::float_empty(Shape::from([0]), &device, parameter.dtype().into());
    BurnAutodiff::<Wgsl>::float_set_require_grad(BurnAutodiff::<Wgsl>::from_inner(none), true)
}

/// Computes gradients, and gives those of nodes in the places of parameters to the parameters.
///
/// # Panics
///
/// Panics if this thread is in a backward pass: Burn's would wait for itself.
pub(super) fn backward(root: F, compute: impl FnOnce(F) -> Gradients) -> Gradients {
    /// Ends the backward pass, also if it panics.
    struct BackwardPass;
    impl Drop for BackwardPass {
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
    let pass = BackwardPass;
    let mut gradients = compute(local(root));
    drop(pass);
    let parameters = PARAMETERS.lock();
    // The ops may have run in other threads.
    let shared = parameters.of.iter().filter(|_| parameters.are_shared);
    for (id, (_, node)) in
        shared.flat_map(|(id, of)| of.in_threads.iter().map(move |in_thread| (id, in_thread)))
    {
        if let Some(gradient) = gradients.remove::<Wgsl>(node) {
            gradients.register::<Wgsl>(*id, gradient);
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
