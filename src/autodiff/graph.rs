//! The graph of each thread, with nodes of its own in the places of parameters.
//!
//! Burn's autodiff gives each new leaf a graph, and joins the graphs of all operands of an op. To join graphs is slow,
//! as maps are copied, and a graph that is joined twice loses gradients (`docs/upstream`). Threads that compute with
//! the same parameters, as those of clones of a network, share a graph then: an op that joins graphs and a backward
//! pass can wait for each other for ever, and a backward pass removes the nodes of other threads.
//!
//! So each thread has one graph, and an op takes a node of this graph in the place of a parameter's. A backward pass
//! gives the gradients of these nodes to the parameters.
//!
//! A backward pass takes the steps of the nodes that it reaches, and Burn forgets where these nodes are. The step of a
//! node in the place of a parameter names another node, the sink of the graph: so Burn forgets only the sink.

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

/// The number of new leaves at which a graph without a backward pass is swept, at least.
const MANY_LEAVES: usize = 1024;

/// The graph of a thread. None of its tensors has elements.
struct ThreadGraph {
    /// New leaves are added to the graph of this node, which no result depends on.
    anchor: F,
    /// The node that steps of leaves name.
    sink: F,
    /// The leaves that were added since the last sweep, and their number at which the graph is swept.
    added: usize,
    swept_at: usize,
    /// The nodes in the places of parameters, by these.
    stand_ins: FxHashMap<NodeId, StandIn>,
}

/// A node in the place of a parameter's.
struct StandIn {
    parameter: Weak<NodeId>,
    node: F,
}

impl StandIn {
    /// Returns whether results that wait for a backward pass depend on it.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.node.node) > 1
    }

    /// Returns whether ops may take it, or results depend on it.
    fn is_needed(&self) -> bool {
        self.is_used() || self.parameter.strong_count() > 0
    }
}

impl ThreadGraph {
    fn new(device_of: &WgslTensor) -> Self {
        let anchor = BurnAutodiff::<Wgsl>::from_inner(without_elements(device_of));
        let anchor = BurnAutodiff::<Wgsl>::float_set_require_grad(anchor, true);
        // Its step names itself.
        let sink = join(&anchor);
        let sink = as_leaf(sink, None);
        let stand_ins = FxHashMap::default();
        Self { anchor, sink, added: 0, swept_at: MANY_LEAVES, stand_ins }
    }

    /// Adds a leaf.
    fn add_leaf(&mut self) -> F {
        self.added += 1;
        as_leaf(join(&self.anchor), Some(self.sink.node.id))
    }

    /// Returns the node in the place of a parameter's.
    fn stand_in(&mut self, parameter: &F) -> &F {
        let id = parameter.node.id;
        if !self.stand_ins.contains_key(&id) {
            // Burn locks all graphs then, of which one may be in this thread's backward pass.
            if self.added >= self.swept_at && !IN_BACKWARD.get() {
                self.sweep(&parameter.primitive);
            }
            let node = self.add_leaf();
            self.stand_ins.insert(id, StandIn { parameter: Arc::downgrade(&parameter.rc), node });
        }
        &self.stand_ins[&id].node
    }

    /// Removes the nodes that no backward pass can reach any more, as those of dropped results. The graph's own
    /// backward passes do so, too; other threads' do not.
    fn sweep(&mut self, device_of: &WgslTensor) {
        self.stand_ins.retain(|_, stand_in| stand_in.is_needed());
        // Burn sweeps at the end of a backward pass. The anchor's device may be closed.
        let leaf = F { primitive: without_elements(device_of), ..self.add_leaf() };
        drop(BurnAutodiff::<Wgsl>::backward(leaf));
        (self.added, self.swept_at) = (0, (2 * self.stand_ins.len()).max(MANY_LEAVES));
    }

    /// Returns whether results of this graph wait for a backward pass.
    fn has_waiting_results(&self) -> bool {
        self.stand_ins.values().any(StandIn::is_used)
    }

    /// Gives the gradients of stand-ins to the parameters.
    fn give_gradients(&mut self, gradients: &mut Gradients) {
        self.stand_ins.retain(|parameter, stand_in| {
            if let Some(gradient) = gradients.remove::<Wgsl>(&stand_in.node) {
                gradients.register::<Wgsl>(*parameter, gradient);
            }
            stand_in.is_needed()
        });
    }
}

/// The step of a new result, until a leaf replaces it.
#[derive(Debug)]
struct Join;

impl Backward<Wgsl, 1> for Join {
    type State = ();

    fn backward(self, _: Ops<(), 1>, _: &mut Gradients, _: &mut Checkpointer) {}
}

/// Returns a tensor without elements, on the device of another.
fn without_elements(device_of: &WgslTensor) -> WgslTensor {
    Wgsl::float_empty(Shape::from([0]), &device_of.device(), device_of.dtype().into())
}

/// Adds a result of a node to its graph.
fn join(anchor: &F) -> F {
    let none = anchor.primitive.clone();
    match Join.prepare::<NoCheckpointing>([anchor.node.clone()]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish((), none),
        OpsKind::UnTracked(prep) => prep.finish(none),
    }
}

/// Makes a leaf of a new result: replaces its step by that of a leaf, which names the node `sink`, or the leaf's own.
fn as_leaf(mut result: F, sink: Option<NodeId>) -> F {
    let mut leaf = BurnAutodiff::<Wgsl>::from_inner(result.primitive.clone());
    leaf.rc = result.rc.clone();
    let node = Arc::get_mut(&mut leaf.node).expect("nothing else has the node of a new tensor");
    node.id = sink.unwrap_or(result.node.id);
    let leaf = BurnAutodiff::<Wgsl>::float_set_require_grad(leaf, true);
    let node =
        Arc::get_mut(&mut result.node).expect("the replaced step had the only other reference");
    node.parents.clear();
    node.requirement = leaf.node.requirement;
    result
}

/// Calls a function on the graph of this thread. A new one has its tensors on the device of another tensor.
fn with_graph<R>(device_of: &WgslTensor, call: impl FnOnce(&mut ThreadGraph) -> R) -> R {
    let graph = GRAPH.with_borrow_mut(|graph| {
        let new = || {
            let graph = Arc::new(Mutex::new(ThreadGraph::new(device_of)));
            GRAPHS.lock().push(graph.clone());
            graph
        };
        graph.get_or_insert_with(new).clone()
    });
    call(&mut graph.lock())
}

/// Returns whether a node is that of a parameter.
fn is_parameter(tensor: &F) -> bool {
    // Nodes with parents are results. Leaves have no depth, but for those in the place of parameters.
    !tensor.node.requirement.is_none() && tensor.node.parents.is_empty() && tensor.node.order == 0
}

/// Returns an operand with a node of this thread's graph: another one, if it is a parameter.
pub(crate) fn local(operand: F) -> F {
    if !is_parameter(&operand) {
        return operand;
    }
    let stand_in = with_graph(&operand.primitive, |graph| graph.stand_in(&operand).clone());
    F { primitive: operand.primitive, ..stand_in }
}

/// Returns a parameter with a new node of this thread's graph.
fn new_leaf_of(parameter: F) -> F {
    let leaf = with_graph(&parameter.primitive, ThreadGraph::add_leaf);
    F { primitive: parameter.primitive, ..leaf }
}

/// Adds a leaf without elements to the graph of this thread.
#[cfg(feature = "train")]
pub(super) fn leaf(device_of: &WgslTensor) -> F {
    with_graph(device_of, ThreadGraph::add_leaf)
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
    // A pass that begins at a leaf takes its step, which must be there.
    let (parameter, root) = match is_parameter(&root) {
        true => (Some(root.node.id), new_leaf_of(root)),
        false => (None, root),
    };
    IN_BACKWARD.set(true);
    let pass = BackwardPass(GRAPH.take());
    let mut gradients = compute(root.clone());
    drop(pass);
    if let (Some(parameter), Some(gradient)) = (parameter, gradients.remove::<Wgsl>(&root)) {
        gradients.register::<Wgsl>(parameter, gradient);
    }
    // Not under the lock of all: a thread may wait for another one's pass in its own graph.
    let graphs = GRAPHS.lock().clone();
    for graph in &graphs {
        graph.lock().give_gradients(&mut gradients);
    }
    drop(graphs);
    drop_graphs_of_ended_threads(&root.primitive);
    gradients
}

/// Drops the graphs of threads that have ended, unless results of them wait for a backward pass.
fn drop_graphs_of_ended_threads(device_of: &WgslTensor) {
    let has_ended = |graph: &&Arc<Mutex<ThreadGraph>>| Arc::strong_count(graph) == 1;
    let ended: Vec<_> = GRAPHS.lock().iter().filter(has_ended).cloned().collect();
    for graph in ended {
        let mut of_thread = graph.lock();
        of_thread.sweep(device_of);
        if !of_thread.has_waiting_results() {
            GRAPHS.lock().retain(|other| !Arc::ptr_eq(other, &graph));
        }
    }
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
