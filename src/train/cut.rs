//! Graphs that are cut between two parts of a model: each part has a graph of its own, and gradients are passed from
//! one to the other.

use std::collections::HashMap;

use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorPrimitive};

pub(crate) use super::state::create_parameters;
use crate::backend::compute;
use crate::device::WgslDevice;

/// A float tensor without a graph: the gradient of one, or what a part computes for the next.
pub(crate) type Gradient<B> = TensorPrimitive<<B as AutodiffBackend>::InnerBackend>;

/// Propagates the gradient of a part's result back: adds the gradients of its parameters, and returns that of its
/// input.
pub(crate) type Step<B> =
    Box<dyn FnOnce(Gradient<B>, &mut GradientsParams) -> Option<Gradient<B>> + Send>;

/// Returns the gradients of a result whose own gradient is known.
pub(crate) fn gradients_of<B: AutodiffBackend, const D: usize>(
    y: Tensor<B, D>,
    gradient: Gradient<B>,
) -> B::Gradients {
    let gradient = Tensor::<B, D>::from_inner(Tensor::from_primitive(gradient));
    (y * gradient).sum().backward()
}

/// Returns a module with the same parameters, and nodes of its own for them.
///
/// Burn's `Autodiff` of 0.21 joins graphs that share a node, and loses track of where nodes are if it joins them more
/// than once: a backward pass through one part of a joined graph can then delete the others. So two graphs that are
/// kept at the same time must not share parameters. This crate's `Autodiff` joins none.
pub(crate) fn with_own_nodes<B: AutodiffBackend, M: Module<B>>(module: &M) -> M {
    module.clone().map(&mut OwnNodes { seen: HashMap::new() })
}

struct OwnNodes<B: AutodiffBackend> {
    /// A parameter that is in the module twice has one node.
    seen: HashMap<ParamId, TensorPrimitive<B>>,
}

impl<B: AutodiffBackend> ModuleMapper<B> for OwnNodes<B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, value, mapper) = param.consume();
        let value = match (self.seen.get(&id), value.is_require_grad()) {
            (Some(seen), _) => Tensor::from_primitive(seen.clone()),
            (None, true) => Tensor::from_inner(value.inner()).require_grad(),
            (None, false) => value,
        };
        self.seen.insert(id, value.clone().into_primitive());
        Param::from_mapped_value(id, value, mapper)
    }
}

/// Computes what is pending, which would keep the activations that it is computed from.
pub(crate) fn compute_pending(device: &WgslDevice) {
    if let Err(error) = compute(device) {
        log::warn!("{error}");
    }
}

/// Adds the gradients of a module to a sum.
pub(crate) fn add_gradients<B: AutodiffBackend, M: AutodiffModule<B>>(
    sum: &mut GradientsParams,
    module: &M,
    gradients: B::Gradients,
) {
    let new = GradientsParams::from_grads(gradients, module);
    module.visit(&mut Add { sum, new });
}

struct Add<'a> {
    sum: &'a mut GradientsParams,
    new: GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Add<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        // A parameter that is visited twice has no new gradient the second time.
        let Some(new) = self.new.remove::<B::InnerBackend, D>(param.id) else { return };
        let sum = match self.sum.remove::<B::InnerBackend, D>(param.id) {
            Some(old) => old + new,
            None => new,
        };
        self.sum.register(param.id, sum);
    }
}
