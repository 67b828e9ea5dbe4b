//! The graph of each thread, with nodes of its own in the places of parameters.
//!
//! Burn's autodiff gives each new leaf a graph, and joins the graphs of all operands of an op. To join graphs is slow,
//! as maps are copied, and a graph that is joined twice loses gradients (`docs/upstream`). Threads that compute with
//! the same parameters, as those of clones of a network, share a graph then: an op that joins graphs and a backward
//! pass can wait for each other for ever, and a backward pass removes the nodes of other threads.
//!
//! So each thread has one graph, and an op takes a node of this graph in the place of a parameter's. A backward pass
//! gives the gradients of these nodes to the parameters. Each node is used until a backward pass has reached it.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
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
    /// The graph of this thread, after its first op with a gradient.
    static GRAPH: RefCell<Option<Arc<Mutex<ThreadGraph>>>> = const { RefCell::new(None) };
}

/// The graphs of all threads: a backward pass can run in another thread than the ops.
static GRAPHS: Mutex<Vec<Arc<Mutex<ThreadGraph>>>> = Mutex::new(Vec::new());

/// The graph of a thread. None of its tensors has elements.
struct ThreadGraph {
    /// A node that no result depends on. The graph is where this node is.
    anchor: F,
    /// By their parameters, the nodes that ops take now.
    current: FxHashMap<NodeId, StandIn>,
    /// Those that a backward pass has reached, while results that depend on them wait for another one.
    reached: Vec<(NodeId, StandIn)>,
}

/// A node in the place of a parameter's.
struct StandIn {
    parameter: Weak<NodeId>,
    node: F,
}

impl StandIn {
    /// Returns whether results that wait for a backward pass depend on it.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.node.node) > 1 && self.parameter.strong_count() > 0
    }
}

impl ThreadGraph {
    fn new(parameter: &WgslTensor) -> Self {
        let anchor =
            BurnAutodiff::<Wgsl>::float_set_require_grad(without_elements(parameter), true);
        Self { anchor, current: FxHashMap::default(), reached: Vec::new() }
    }

    /// Adds a leaf in the place of a parameter.
    fn add_leaf(&self, parameter: &WgslTensor) -> F {
        // As a result of the anchor, it comes into this graph.
        let nodes = [self.anchor.node.clone()];
        let none = without_elements(parameter);
        let join = Join.prepare::<NoCheckpointing>(nodes).compute_bound().stateful();
        let mut leaf = match join {
            OpsKind::Tracked(prep) => prep.finish((), none.primitive.clone()),
            OpsKind::UnTracked(prep) => prep.finish(none.primitive.clone()),
        };
        // There, a leaf with the same id replaces it.
        let mut same = F { rc: leaf.rc.clone(), ..none };
        if let Some(node) = Arc::get_mut(&mut same.node) {
            node.id = leaf.node.id;
        }
        let same = BurnAutodiff::<Wgsl>::float_set_require_grad(same, true);
        let node =
            Arc::get_mut(&mut leaf.node).expect("the replaced step had the only other reference");
        node.parents.clear();
        node.requirement = same.node.requirement;
        leaf
    }

    /// Returns the node in the place of a parameter's.
    fn stand_in(&mut self, parameter: &F) -> &F {
        let id = parameter.node.id;
        if !self.current.contains_key(&id) {
            let node = self.add_leaf(&parameter.primitive);
            self.current.insert(id, StandIn { parameter: Arc::downgrade(&parameter.rc), node });
        }
        &self.current[&id].node
    }

    /// Gives the gradients of stand-ins to the parameters.
    fn give_gradients(&mut self, gradients: &mut Gradients) {
        for (parameter, stand_in) in &self.reached {
            if let Some(gradient) = gradients.remove::<Wgsl>(&stand_in.node) {
                gradients.register::<Wgsl>(*parameter, gradient);
            }
        }
        let mut is_reached = |parameter: &NodeId, stand_in: &mut StandIn| {
            let gradient = gradients.remove::<Wgsl>(&stand_in.node);
            let is_reached = gradient.is_some();
            if let Some(gradient) = gradient {
                gradients.register::<Wgsl>(*parameter, gradient);
            }
            is_reached || stand_in.parameter.strong_count() == 0
        };
        self.reached.extend(self.current.extract_if(|id, stand_in| is_reached(id, stand_in)));
        self.reached.retain(|(_, stand_in)| stand_in.is_used());
    }
}

/// Adds a result of a graph's anchor to the graph. A leaf replaces it before any backward pass.
#[derive(Debug)]
struct Join;

impl Backward<Wgsl, 1> for Join {
    type State = ();

    fn backward(self, _: Ops<(), 1>, _: &mut Gradients, _: &mut Checkpointer) {}
}

fn without_elements(device_of: &WgslTensor) -> F {
    let dtype = device_of.dtype().into();
    let none = Wgsl::float_empty(Shape::from([0]), &device_of.device(), dtype);
    BurnAutodiff::<Wgsl>::from_inner(none)
}

/// Calls a function on the graph of this thread, which is created on the device of `parameter`.
fn with_graph<R>(parameter: &WgslTensor, call: impl FnOnce(&mut ThreadGraph) -> R) -> R {
    let graph = GRAPH.with_borrow_mut(|graph| {
        let new = || {
            let graph = Arc::new(Mutex::new(ThreadGraph::new(parameter)));
            GRAPHS.lock().push(graph.clone());
            graph
        };
        graph.get_or_insert_with(new).clone()
    });
    call(&mut graph.lock())
}

/// Returns an operand with a node of this thread's graph: another one, if it is a parameter.
pub(crate) fn local(operand: F) -> F {
    // Nodes with parents are results. Leaves have no depth, but for those in the place of parameters.
    if operand.node.requirement.is_none()
        || !operand.node.parents.is_empty()
        || operand.node.order > 0
    {
        return operand;
    }
    let stand_in = with_graph(&operand.primitive, |graph| graph.stand_in(&operand).clone());
    F { primitive: operand.primitive, ..stand_in }
}

/// Adds a leaf without elements to the graph of this thread.
#[cfg(feature = "train")]
pub(super) fn leaf(device_of: &WgslTensor) -> F {
    with_graph(device_of, |graph| graph.add_leaf(device_of))
}

/// Computes gradients, and gives those of nodes in the places of parameters to the parameters.
///
/// # Panics
///
/// Panics if this thread is in a backward pass: Burn's would wait for itself.
pub(super) fn backward(root: F, compute: impl FnOnce(F) -> Gradients) -> Gradients {
    /// The graph of this thread, in whose place the ops of gradients have another one. Ends the backward pass, also if
    /// it panics.
    struct BackwardPass(Option<Arc<Mutex<ThreadGraph>>>);
    impl Drop for BackwardPass {
        fn drop(&mut self) {
            IN_BACKWARD.set(false);
            GRAPH.set(self.0.take());
        }
    }
    assert!(
        !IN_BACKWARD.get(),
        "backward: it was called by the gradient of another op, which holds the graph until that gradient is known; \
         compute the inner gradient without `Autodiff`, or after the first backward pass"
    );
    let root = local(root);
    IN_BACKWARD.set(true);
    let pass = BackwardPass(GRAPH.take());
    let mut gradients = compute(root);
    drop(pass);
    GRAPHS.lock().retain(|graph| {
        let mut of_thread = graph.lock();
        of_thread.give_gradients(&mut gradients);
        // The last reference is that of a thread that has ended.
        let waits =
            of_thread.current.values().any(StandIn::is_used) || !of_thread.reached.is_empty();
        drop(of_thread);
        Arc::strong_count(graph) > 1 || waits
    });
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
