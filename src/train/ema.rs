//! Averages of weights.

use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::container::TensorContainer;

/// An exponential moving average of a model's weights, which often predicts better than the last weights.
///
/// After each step, `average = decay * average + (1 - decay) * weights`; the first steps use a smaller decay,
/// `(1 + steps) / (10 + steps)`, so that the first weights are soon forgotten. Running statistics, such as those of
/// batch normalisation, are averaged, too. Integers and booleans are those of the model. On a GPU, the weights are
/// updated in a few launches.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn_wgsl::train::Ema;
/// use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
///
/// let model: Linear<Autodiff<Wgsl>> = LinearConfig::new(2, 1).init(&WgslDevice::default());
/// let mut average = Ema::new(&model, 0.999);
/// average.update(&model); // after each step
/// ```
#[derive(Debug, Clone)]
pub struct Ema<M> {
    average: M,
    decay: f64,
    steps: u64,
}

impl<I> Ema<I> {
    /// Creates an average that begins with the weights of a model.
    ///
    /// # Panics
    ///
    /// Panics if the decay is not in [0, 1).
    pub fn new<B, M>(model: &M, decay: f64) -> Self
    where
        B: AutodiffBackend,
        M: AutodiffModule<B, InnerModule = I>,
    {
        assert!(
            (0.0..1.0).contains(&decay),
            "the decay is {decay}; it must be at least 0 and below 1"
        );
        Self { average: model.valid(), decay, steps: 0 }
    }

    /// Updates the average with the weights after a step.
    ///
    /// # Panics
    ///
    /// Panics if the model has other parameters than the average.
    pub fn update<B, M>(&mut self, model: &M)
    where
        B: AutodiffBackend,
        M: AutodiffModule<B, InnerModule = I>,
        I: Module<B::InnerBackend> + Clone,
    {
        let decay = self.decay.min((1.0 + self.steps as f64) / (10.0 + self.steps as f64));
        self.steps += 1;
        let mut average = Average { old: TensorContainer::new(), decay };
        self.average.visit(&mut average);
        self.average = model.valid().map(&mut average);
    }

    /// Returns the model with averaged weights, for validation and for saving.
    pub fn model(&self) -> &I {
        &self.average
    }

    /// Returns the number of updates.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Continues an average that was saved: its weights, and the number of its updates.
    pub fn resume(&mut self, average: I, steps: u64) {
        (self.average, self.steps) = (average, steps);
    }
}

/// Collects the averages, and then maps weights to new averages.
struct Average {
    old: TensorContainer<ParamId>,
    decay: f64,
}

impl<B: Backend> ModuleVisitor<B> for Average {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.old.register::<B>(param.id, param.val().into_primitive());
    }
}

impl<B: Backend> ModuleMapper<B> for Average {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, weights, mapper) = param.consume();
        let old = self.old.get::<B>(&id).map(Tensor::<B, D>::from_primitive);
        let Some(old) = old.filter(|old| old.dims() == weights.dims()) else {
            panic!("the average is that of another model: the parameter {id} differs");
        };
        let average = old.clone() + (weights - old) * (1.0 - self.decay);
        Param::from_mapped_value(id, average, mapper)
    }
}
