//! Nodes of the graph for ops with gradients of their own.

use std::fmt::Debug;

use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_std::FloatDType;

use super::graph;
use super::kinds::F;
use crate::backend::{Wgsl, WgslTensor};

/// What the gradients of an op need besides its inputs.
pub(crate) trait State: Clone + Send + Debug + 'static {}

impl<S: Clone + Send + Debug + 'static> State for S {}

/// Computes the gradients of `N` inputs from the first `K` of them, the state, and the gradient of
/// the result.
type GradientsOf<S, const N: usize, const K: usize> =
    fn([WgslTensor; K], S, WgslTensor) -> [WgslTensor; N];

/// The gradients of an op. The inputs that they need are kept, or computed again if they are
/// checkpointed.
#[derive(Debug)]
struct Gradient<S: State, const N: usize, const K: usize>(GradientsOf<S, N, K>);

impl<S: State, const N: usize, const K: usize> Backward<Wgsl, N> for Gradient<S, N, K> {
    type State = ([NodeId; K], S);

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<Wgsl>(&ops.node);
        let (kept, state) = ops.state;
        let kept = kept.map(|id| checkpointer.retrieve_node_output::<WgslTensor>(id));
        for (parent, grad) in ops.parents.into_iter().zip((self.0)(kept, state, grad)) {
            if let Some(parent) = parent {
                grads.register::<Wgsl>(parent.id, grad);
            }
        }
    }
}

/// Adds the node of an op with the result `output` to the graph. `gradients` computes the gradients
/// of the inputs from the first `K` of them and `state`.
pub(crate) fn node<C: CheckpointStrategy, S: State, const N: usize, const K: usize>(
    inputs: [F; N],
    output: WgslTensor,
    state: S,
    gradients: GradientsOf<S, N, K>,
) -> F {
    const { assert!(K <= N) };
    let inputs = inputs.map(graph::local);
    let nodes = inputs.each_ref().map(|input| input.node.clone());
    graph::registered(match Gradient(gradients).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let kept = std::array::from_fn(|index| prep.checkpoint(&inputs[index]));
            prep.finish((kept, state), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(output),
    })
}

/// As [`node`], for an op that `compute` computes from inputs that it may overwrite: the gradients
/// do not need them.
pub(super) fn node_in_place<C: CheckpointStrategy, S: State, const N: usize>(
    inputs: [F; N],
    compute: impl FnOnce([WgslTensor; N]) -> WgslTensor,
    state: S,
    gradients: GradientsOf<S, N, 0>,
) -> F {
    let inputs = inputs.map(graph::local);
    let nodes = inputs.each_ref().map(|input| input.node.clone());
    // These keep the nodes in the graph until they have a child.
    let _counts = inputs.each_ref().map(|input| input.rc.clone());
    let output = compute(inputs.map(|input| input.primitive));
    graph::registered(match Gradient(gradients).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(([], state), output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    })
}

/// Computes a gradient in f32 and returns it in the type of the first tensor: intermediate results
/// would be out of the range of 16 bits, or lose digits.
pub(super) fn in_f32<const N: usize>(
    tensors: [WgslTensor; N],
    gradient: impl FnOnce([WgslTensor; N]) -> WgslTensor,
) -> WgslTensor {
    let dtype = tensors[0].dtype();
    let tensors = tensors.map(|tensor| Wgsl::float_cast(tensor, FloatDType::F32));
    Wgsl::float_cast(gradient(tensors), dtype.into())
}
