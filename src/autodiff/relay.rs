//! Nodes in the place of parameters, which report their gradients.

use std::fmt::Debug;
use std::sync::Arc;

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff as BurnAutodiff, NodeId};
use burn_backend::backend::AutodiffBackend;

use super::graph::{leaf, registered};
use super::kinds::F;
use crate::backend::{Wgsl, WgslTensor};

/// What is done with a gradient when it is complete.
pub(crate) trait OnGradient: Clone + Send + Debug + 'static {
    /// Returns what the backward pass takes for the gradient.
    fn call(self, gradient: WgslTensor) -> WgslTensor;
}

/// The step of a node in a parameter's place.
#[derive(Debug)]
struct Relay<O> {
    parameter: NodeId,
    on_gradient: O,
}

impl<O: OnGradient> Backward<Wgsl, 2> for Relay<O> {
    type State = ();

    fn backward(self, ops: Ops<(), 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Wgsl>(&ops.node);
        grads.register::<Wgsl>(self.parameter, self.on_gradient.call(gradient));
    }
}

/// Returns a parameter with another node, which passes its gradient through `on_gradient` to the parameter. A result of
/// it is deeper in the graph than `depth`.
///
/// Its parent is another leaf: as a child of the parameter, a node that no backward pass reaches would stay for as long
/// as the parameter.
pub(crate) fn relayed<C: CheckpointStrategy>(
    parameter: F,
    depth: usize,
    on_gradient: impl OnGradient,
) -> F {
    let tensor = parameter.primitive;
    let parent = leaf(&tensor);
    // Burn runs the deepest nodes first. The second parent raises this one.
    let mut beside = BurnAutodiff::<Wgsl>::from_inner(tensor.clone());
    // Nothing else has the node of a new tensor.
    if let Some(node) = Arc::get_mut(&mut beside.node) {
        node.order = depth;
    }
    let relay = Relay { parameter: parameter.node.id, on_gradient };
    let nodes = [parent.node, beside.node];
    registered(match relay.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish((), tensor),
        OpsKind::UnTracked(prep) => prep.finish(tensor),
    })
}
