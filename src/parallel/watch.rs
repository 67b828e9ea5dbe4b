//! The mean of gradients, which are exchanged after a backward pass, or while it computes the others.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use burn::module::{AutodiffModule, ModuleMapper, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensorOps;
use burn::tensor::{Tensor, TensorPrimitive};
use parking_lot::Mutex;

use super::ParallelError;
use super::buckets::Exchange;
use super::peers::Peers;
use crate::Autodiff;
use crate::autodiff::CheckpointStrategy;
use crate::autodiff::relay::{OnGradient, relayed};
use crate::backend::{Wgsl, WgslTensor};

/// More nodes than a network has from one parameter to the next, on average.
const DEPTH: usize = 16;

/// Returns the mean of the gradients of all workers, each weighted by its samples.
pub(super) fn mean<B, M>(
    peers: &Arc<Peers>,
    watched: Option<Watched>,
    mut gradients: GradientsParams,
    module: &M,
    samples: usize,
) -> Result<GradientsParams, ParallelError>
where
    B: AutodiffBackend<InnerBackend = Wgsl>,
    M: AutodiffModule<B>,
{
    if peers.world == 1 {
        return Ok(if samples == 0 { GradientsParams::new() } else { gradients });
    }
    let exchange = match watched {
        Some(watched) => watched.end(peers, samples)?,
        None => Exchange::start::<B, M>(peers, module, samples)?,
    };
    let Some(exchange) = exchange else { return Ok(GradientsParams::new()) };
    exchange.finish(&mut gradients, module)?;
    Ok(gradients)
}

/// An exchange of gradients that goes on while a backward pass computes them.
pub(super) struct Watched {
    /// `None` if there are no samples.
    exchange: Option<Arc<Mutex<SharedExchange>>>,
    samples: usize,
}

/// The state that the nodes of the parameters share.
struct SharedExchange {
    /// `None` once the mean is taken.
    exchange: Option<Exchange>,
    /// An error of the exchange, for when the mean is taken.
    result: Result<(), ParallelError>,
}

impl Watched {
    /// Returns a module whose parameters give their gradients to the exchange.
    pub fn start<C, M>(
        peers: &Arc<Peers>,
        module: &M,
        samples: usize,
    ) -> Result<(M, Self), ParallelError>
    where
        C: CheckpointStrategy,
        M: AutodiffModule<Autodiff<Wgsl, C>>,
    {
        let exchange = Exchange::start::<Autodiff<Wgsl, C>, M>(peers, module, samples)?;
        let Some(exchange) = exchange else {
            return Ok((module.clone(), Self { exchange: None, samples }));
        };
        let indices = exchange.indices().clone();
        let shared = SharedExchange { exchange: Some(exchange), result: Ok(()) };
        let shared = Arc::new(Mutex::new(shared));
        let mut watch = Watch { shared: shared.clone(), indices };
        let module = module.clone().map(&mut watch);
        peers.set_watching(true);
        Ok((module, Self { exchange: Some(shared), samples }))
    }

    /// Ends the watch. Returns what is left to do.
    fn end(self, peers: &Peers, samples: usize) -> Result<Option<Exchange>, ParallelError> {
        peers.set_watching(false);
        if samples != self.samples {
            let message =
                format!("{samples} samples have gradients, and {} are watched", self.samples);
            return Err(peers.failed(message));
        }
        let Some(shared) = self.exchange else { return Ok(None) };
        let mut shared = shared.lock();
        std::mem::replace(&mut shared.result, Ok(()))?;
        Ok(shared.exchange.take())
    }
}

/// Where the node of a parameter puts its gradient.
#[derive(Clone)]
struct Hook {
    shared: Arc<Mutex<SharedExchange>>,
    index: usize,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("index", &self.index).finish_non_exhaustive()
    }
}

impl OnGradient for Hook {
    /// Gives a gradient to the exchange, in the type of its parameter.
    fn call(self, gradient: WgslTensor) -> WgslTensor {
        let mut shared = self.shared.lock();
        let SharedExchange { exchange: Some(exchange), result } = &mut *shared else {
            return gradient;
        };
        let gradient = Wgsl::float_cast(gradient, exchange.dtype(self.index).into());
        if result.is_ok() {
            *result = exchange.add_watched(self.index, gradient.clone());
        }
        gradient
    }
}

/// Adds a node to each parameter that has a gradient.
struct Watch {
    shared: Arc<Mutex<SharedExchange>>,
    /// Those that have none yet. A module that uses one twice cannot be watched.
    indices: HashMap<ParamId, usize>,
}

impl<C: CheckpointStrategy> ModuleMapper<Autodiff<Wgsl, C>> for Watch {
    fn map_float<const D: usize>(
        &mut self,
        param: Param<Tensor<Autodiff<Wgsl, C>, D>>,
    ) -> Param<Tensor<Autodiff<Wgsl, C>, D>> {
        let (id, value, mapper) = param.consume();
        let value = match self.indices.remove(&id) {
            Some(index) => {
                let hook = Hook { shared: self.shared.clone(), index };
                let value = value.into_primitive().tensor();
                // As deep as its layer, so that it runs right after the layer instead of last.
                let value = relayed::<C>(value, (index + 1) * DEPTH, hook);
                Tensor::from_primitive(TensorPrimitive::Float(value))
            }
            None => value,
        };
        Param::from_mapped_value(id, value, mapper)
    }
}
