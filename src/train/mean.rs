//! Gradients of several batches, as those of one.

use std::collections::HashSet;
use std::marker::PhantomData;

use burn::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;

/// The mean of gradients of several batches, each weighted by its samples: the gradients of one batch of all samples,
/// if each loss is a mean over its batch. Burn's `GradientsAccumulator` has their sum.
///
/// With a [`GradScaler`](crate::scaler::GradScaler), scale each loss, and step once with the mean. Clipping belongs to
/// the optimizer, which sees the mean.
///
/// ```no_run
/// # use burn::module::AutodiffModule;
/// # use burn::optim::{GradientsParams, Optimizer};
/// # use burn::tensor::{backend::AutodiffBackend, Tensor};
/// # use burn_wgsl::train::MeanGradients;
/// # fn train<B: AutodiffBackend, M: AutodiffModule<B>>(
/// #     mut model: M,
/// #     mut optimizer: impl Optimizer<M, B>,
/// #     batches: Vec<(usize, Tensor<B, 1>)>,
/// # ) {
/// let mut mean = MeanGradients::new();
/// for (samples, loss) in batches {
///     mean.add(&model, GradientsParams::from_grads(loss.backward(), &model), samples);
///     if mean.samples() >= 64 {
///         model = optimizer.step(1e-3, model, mean.take());
///     }
/// }
/// // The rest of an epoch is a step, too.
/// if mean.samples() > 0 {
///     model = optimizer.step(1e-3, model, mean.take());
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct MeanGradients<M> {
    mean: GradientsParams,
    samples: usize,
    module: PhantomData<M>,
}

impl<M> Default for MeanGradients<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> MeanGradients<M> {
    /// Creates the mean of no batches.
    pub fn new() -> Self {
        Self { mean: GradientsParams::new(), samples: 0, module: PhantomData }
    }

    /// Returns the samples of the batches since [`take`](Self::take).
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Adds the gradients of a batch. A parameter without a gradient has that of zeros.
    pub fn add<B: AutodiffBackend>(
        &mut self,
        module: &M,
        gradients: GradientsParams,
        samples: usize,
    ) where
        M: AutodiffModule<B>,
    {
        if samples == 0 {
            return;
        }
        self.samples += samples;
        let share = samples as f64 / self.samples as f64;
        module.visit(&mut Add { mean: &mut self.mean, gradients, share, seen: HashSet::new() });
    }

    /// Returns the mean, and begins again with no batches.
    pub fn take(&mut self) -> GradientsParams {
        self.samples = 0;
        std::mem::take(&mut self.mean)
    }
}

/// Adds the gradients of a batch to the mean.
struct Add<'a> {
    mean: &'a mut GradientsParams,
    gradients: GradientsParams,
    /// The samples of the batch as a part of all.
    share: f64,
    /// A parameter that is used twice is visited twice.
    seen: HashSet<ParamId>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Add<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let new = self.gradients.remove::<B::InnerBackend, D>(param.id);
        let old = self.mean.remove::<B::InnerBackend, D>(param.id);
        // A mean stays in the range of its type, where a sum that is divided at the end may not.
        let mean = match (old, new) {
            (Some(old), Some(new)) => old.clone() + (new - old) * self.share,
            (Some(old), None) => old * (1.0 - self.share),
            (None, Some(new)) if self.share == 1.0 => new,
            (None, Some(new)) => new * self.share,
            (None, None) => return,
        };
        self.mean.register(param.id, mean);
    }
}
