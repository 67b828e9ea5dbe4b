//! Nodes of the graph for ops with gradients of their own.

use std::fmt::Debug;

use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};

use super::kinds::F;
use crate::backend::{Wgsl, WgslTensor};

/// What the gradient of an op needs from the op besides its inputs.
pub(super) trait State: Clone + Send + Debug + 'static {}

impl<S: Clone + Send + Debug + 'static> State for S {}

/// Computes the gradients of an op's inputs from its inputs, its state, and the gradient of its
/// result.
type GradientOf<S, const N: usize> = fn([WgslTensor; N], S, WgslTensor) -> [WgslTensor; N];

/// The gradient of an op whose inputs are kept, or computed again if they are checkpointed.
#[derive(Debug)]
struct FromInputs<S: State, const N: usize>(GradientOf<S, N>);

impl<S: State, const N: usize> Backward<Wgsl, N> for FromInputs<S, N> {
    type State = ([NodeId; N], S);

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<Wgsl>(&ops.node);
        let (inputs, state) = ops.state;
        let inputs = inputs.map(|id| checkpointer.retrieve_node_output::<WgslTensor>(id));
        for (parent, grad) in ops.parents.into_iter().zip((self.0)(inputs, state, grad)) {
            if let Some(parent) = parent {
                grads.register::<Wgsl>(parent.id, grad);
            }
        }
    }
}

/// The gradient of an op whose state is all that it needs.
#[derive(Debug)]
struct FromState<S: State>(fn(S, WgslTensor) -> WgslTensor);

impl<S: State> Backward<Wgsl, 1> for FromState<S> {
    type State = S;

    fn backward(self, ops: Ops<S, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<Wgsl>(&ops.node);
        let [parent] = ops.parents;
        if let Some(parent) = parent {
            grads.register::<Wgsl>(parent.id, (self.0)(ops.state, grad));
        }
    }
}

/// Adds the node of an op with the result `output`, whose gradients are computed from its inputs.
pub(super) fn from_inputs<C: CheckpointStrategy, S: State, const N: usize>(
    inputs: [F; N],
    output: WgslTensor,
    state: S,
    gradient: GradientOf<S, N>,
) -> F {
    let nodes = inputs.each_ref().map(|input| input.node.clone());
    match FromInputs(gradient).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let kept = inputs.each_ref().map(|input| prep.checkpoint(input));
            prep.finish((kept, state), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}

/// Adds the node of an op with the result `output`, whose gradient is computed from `state`.
pub(super) fn from_state<C: CheckpointStrategy, S: State>(
    input: F,
    output: WgslTensor,
    state: S,
    gradient: fn(S, WgslTensor) -> WgslTensor,
) -> F {
    match FromState(gradient).prepare::<C>([input.node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(state, output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
