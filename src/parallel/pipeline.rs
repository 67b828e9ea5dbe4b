//! A model in stages, each on a device of its own, which compute different micro-batches at the same time.

use std::collections::VecDeque;
use std::fmt;

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensorOps;
use burn::tensor::{Tensor, TensorPrimitive};

use super::ParallelError;
use super::schedule::{Schedule, Work};
use crate::device::WgslDevice;
use crate::train::cut::{
    Gradient, Step, add_gradients, compute_pending, create_parameters, gradients_of, with_own_nodes,
};

/// A part of a batch: the input of the first stage, on its device, and what the loss compares with, on that of the
/// last.
#[derive(Debug, Clone)]
pub struct MicroBatch<X, T> {
    /// The input.
    pub input: X,
    /// What the result is compared with.
    pub target: T,
    /// The number of samples.
    pub samples: usize,
}

/// What a pipeline has computed from a batch.
pub struct PipelineStep<B: AutodiffBackend> {
    /// The mean loss of all samples, `[1]`, on the device of the last stage.
    pub loss: Tensor<B::InnerBackend, 1>,
    /// The gradients of all stages, of the mean loss.
    pub gradients: GradientsParams,
}

impl<B: AutodiffBackend> fmt::Debug for PipelineStep<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineStep").field("gradients", &self.gradients.len()).finish()
    }
}

/// A model in stages, each on a device of its own, for models that exceed the memory of one. A batch is divided into
/// micro-batches, of which the stages compute different ones at the same time.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::{Optimizer, SgdConfig};
/// use burn::tensor::Tensor;
/// use burn_wgsl::parallel::{MicroBatch, ParallelError, Pipeline, Schedule, Workers};
/// use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
///
/// type B = Autodiff<Wgsl>;
///
/// // Or `"gpu:0,gpu:1".parse()?`.
/// let devices = Workers::threads([WgslDevice::default(); 2]).oversubscribed(true).open()?;
/// let first: Linear<B> = LinearConfig::new(8, 16).init(&devices[0]);
/// let second: Linear<B> = LinearConfig::new(16, 1).init(&devices[1]);
/// let mut model = (first, second);
/// let mut optimizer = SgdConfig::new().init();
///
/// let micro_batches = (0..4).map(|_| MicroBatch {
///     input: Tensor::<B, 2>::ones([2, 8], &devices[0]),
///     target: Tensor::<B, 2>::zeros([2, 1], &devices[1]),
///     samples: 2,
/// });
/// let step = Pipeline::start(&devices[0], &model.0, |layer, x: Tensor<B, 2>| layer.forward(x).tanh())
///     .then(&devices[1], &model.1, |layer, x| layer.forward(x))
///     .step(micro_batches, Schedule::OneForwardOneBackward, |y, target| {
///         (y - target).powi_scalar(2).mean()
///     })?;
/// model = optimizer.step(0.1, model, step.gradients);
/// # let _ = model;
/// # Ok::<(), ParallelError>(())
/// ```
///
/// One thread records the work of all stages. It waits for what a stage computes where another device needs it, so that
/// on GPUs the stages overlap. The CPU device computes at once: a stage on it overlaps with GPUs only.
///
/// A stage reads its module, the result of the stage before, and tensors that its closure captures. Captured modules
/// get no gradients. A pipeline is made for one step, because a step changes the modules.
pub struct Pipeline<B: AutodiffBackend, X, const D: usize> {
    stages: Vec<Stage<B, X>>,
}

impl<B: AutodiffBackend, X, const D: usize> fmt::Debug for Pipeline<B, X, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("stages", &self.stages.len()).finish()
    }
}

/// The input of a stage.
enum Input<B: AutodiffBackend, X> {
    /// That of the first.
    First(X),
    /// What the stage before has computed.
    Computed(Gradient<B>),
}

/// Computes a micro-batch: returns the result, and what propagates its gradient back.
type Forward<B, X> = Box<dyn Fn(Input<B, X>) -> Option<(Gradient<B>, Step<B>)>>;

/// A part of a model on a device. It computes its micro-batches in their order.
struct Stage<B: AutodiffBackend, X> {
    device: WgslDevice,
    forward: Forward<B, X>,
    /// What it has left to do.
    work: VecDeque<Work>,
    /// What it has to compute.
    inputs: VecDeque<Input<B, X>>,
    /// The micro-batches whose gradients it has to propagate.
    steps: VecDeque<Step<B>>,
    /// Their gradients; `None` if the loss does not depend on a micro-batch.
    gradients: VecDeque<Option<Gradient<B>>>,
}

impl<B: AutodiffBackend<Device = WgslDevice>, X> Stage<B, X> {
    /// Creates a stage. `forward` returns the result, and the input if the gradient of that is wanted.
    fn new<const I: usize, const O: usize, M: AutodiffModule<B> + 'static>(
        device: &WgslDevice,
        module: &M,
        forward: impl Fn(&M, Input<B, X>) -> Option<(Option<Tensor<B, I>>, Tensor<B, O>)> + 'static,
    ) -> Self {
        create_parameters(module);
        let module = module.clone();
        let forward: Forward<B, X> = Box::new(move |input| {
            let module = with_own_nodes(&module);
            let (input, result) = forward(&module, input)?;
            let value = result.clone().inner().into_primitive();
            let step: Step<B> = Box::new(move |gradient, sum| {
                let mut gradients = gradients_of(result, gradient);
                let gradient = input.and_then(|input| input.grad_remove(&mut gradients));
                add_gradients(sum, &module, gradients);
                gradient.map(Tensor::into_primitive)
            });
            Some((value, step))
        });
        Self {
            device: *device,
            forward,
            work: VecDeque::new(),
            inputs: VecDeque::new(),
            steps: VecDeque::new(),
            gradients: VecDeque::new(),
        }
    }

    /// Returns whether what the next work needs has been requested.
    fn is_ready(&self) -> bool {
        match self.work.front() {
            Some(Work::Forward) => !self.inputs.is_empty(),
            Some(Work::Backward) => !self.gradients.is_empty(),
            None => false,
        }
    }

    /// Computes the next micro-batch.
    fn compute(&mut self) -> Option<Gradient<B>> {
        let (value, step) = (self.forward)(self.inputs.pop_front()?)?;
        self.steps.push_back(step);
        Some(value)
    }

    /// Propagates the next gradient. Returns that of the input.
    fn propagate(&mut self, sum: &mut GradientsParams) -> Option<Gradient<B>> {
        let (step, gradient) = (self.steps.pop_front()?, self.gradients.pop_front().flatten()?);
        step(gradient, sum)
    }
}

impl<B: AutodiffBackend<Device = WgslDevice>, X, const D: usize> Pipeline<B, X, D> {
    /// Begins with a stage, whose input is of any kind.
    pub fn start<M, F>(device: &WgslDevice, module: &M, forward: F) -> Self
    where
        M: AutodiffModule<B> + 'static,
        F: Fn(&M, X) -> Tensor<B, D> + 'static,
    {
        let stage = Stage::new(device, module, move |module, input| match input {
            Input::First(input) => Some((None::<Tensor<B, 1>>, forward(module, input))),
            Input::Computed(_) => None,
        });
        Self { stages: vec![stage] }
    }

    /// Adds a stage, which gets what the stage before has computed.
    #[must_use]
    pub fn then<const E: usize, M, F>(
        mut self,
        device: &WgslDevice,
        module: &M,
        forward: F,
    ) -> Pipeline<B, X, E>
    where
        M: AutodiffModule<B> + 'static,
        F: Fn(&M, Tensor<B, D>) -> Tensor<B, E> + 'static,
    {
        self.stages.push(Stage::new(device, module, move |module, input| {
            let Input::Computed(x) = input else { return None };
            let x = Tensor::<B, D>::from_inner(Tensor::from_primitive(x)).require_grad();
            Some((Some(x.clone()), forward(module, x)))
        }));
        Pipeline { stages: self.stages }
    }

    /// Computes the mean loss of a batch and its gradients. `loss` returns the mean over a micro-batch, as one number.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no samples.
    ///
    /// # Panics
    ///
    /// Panics as ops do: if a device fails or has too little memory, or if a module or a tensor of a stage is on
    /// another device.
    pub fn step<T>(
        mut self,
        micro_batches: impl IntoIterator<Item = MicroBatch<X, T>>,
        schedule: Schedule,
        loss: impl Fn(Tensor<B, D>, T) -> Tensor<B, 1>,
    ) -> Result<PipelineStep<B>, ParallelError> {
        let micro_batches: Vec<MicroBatch<X, T>> =
            micro_batches.into_iter().filter(|micro_batch| micro_batch.samples > 0).collect();
        let samples: usize = micro_batches.iter().map(|micro_batch| micro_batch.samples).sum();
        let (stages, count) = (self.stages.len(), micro_batches.len());
        for (index, stage) in self.stages.iter_mut().enumerate() {
            stage.work = schedule.work(index, stages, count).into();
        }
        let mut targets = VecDeque::new();
        for MicroBatch { input, target, samples: own } in micro_batches {
            self.stages[0].inputs.push_back(Input::First(input));
            targets.push_back((target, own as f64 / samples as f64));
        }
        let (stages, sum) = (self.stages, GradientsParams::new());
        let mut run = Run { stages, targets, loss_sum: None, sum };
        run.finish(&loss);
        let loss = run.loss_sum.ok_or(ParallelError::NoSamples)?;
        Ok(PipelineStep { loss, gradients: run.sum })
    }
}

/// A batch on its way through the stages.
struct Run<B: AutodiffBackend, X, T> {
    stages: Vec<Stage<B, X>>,
    /// What the losses compare with, and the parts of the batch.
    targets: VecDeque<(T, f64)>,
    loss_sum: Option<Tensor<B::InnerBackend, 1>>,
    sum: GradientsParams,
}

impl<B: AutodiffBackend<Device = WgslDevice>, X, T> Run<B, X, T> {
    /// Runs the next work of each stage whose input has been requested, until none is left.
    fn finish<const D: usize>(&mut self, loss: &impl Fn(Tensor<B, D>, T) -> Tensor<B, 1>) {
        let last = self.stages.len() - 1;
        loop {
            // Those first that do not wait for another device.
            let waits = |stage: &usize| match self.stages[*stage].work.front() {
                Some(Work::Forward) => *stage != 0,
                Some(Work::Backward) => *stage != last,
                None => false,
            };
            let mut ready: Vec<usize> =
                (0..=last).filter(|stage| self.stages[*stage].is_ready()).collect();
            ready.sort_by_key(waits);
            if ready.is_empty() {
                return;
            }
            for stage in ready {
                self.work_on(stage, loss);
            }
        }
    }

    fn work_on<const D: usize>(
        &mut self,
        index: usize,
        loss: &impl Fn(Tensor<B, D>, T) -> Tensor<B, 1>,
    ) {
        let stage = &mut self.stages[index];
        let device = stage.device;
        match stage.work.pop_front() {
            Some(Work::Forward) => {
                let Some(value) = stage.compute() else { return };
                match self.stages.get_mut(index + 1) {
                    Some(next) => {
                        let value = moved::<B>(value, &next.device);
                        next.inputs.push_back(Input::Computed(value));
                    }
                    None => {
                        let gradient = self.loss(value, loss);
                        self.stages[index].gradients.push_back(gradient);
                    }
                }
            }
            Some(Work::Backward) => {
                let gradient = stage.propagate(&mut self.sum);
                if index > 0 {
                    let before = &mut self.stages[index - 1];
                    let gradient = gradient.map(|gradient| moved::<B>(gradient, &before.device));
                    before.gradients.push_back(gradient);
                }
            }
            None => {}
        }
        // What is pending would keep the activations that it is computed from.
        compute_pending(&device);
    }

    /// Adds the loss of a micro-batch. Returns the gradient of the result of the last stage.
    fn loss<const D: usize>(
        &mut self,
        y: Gradient<B>,
        loss: &impl Fn(Tensor<B, D>, T) -> Tensor<B, 1>,
    ) -> Option<Gradient<B>> {
        let (target, share) = self.targets.pop_front()?;
        let y = Tensor::<B, D>::from_inner(Tensor::from_primitive(y)).require_grad();
        let loss = loss(y.clone(), target) * share;
        let value = loss.clone().inner();
        self.loss_sum = Some(match self.loss_sum.take() {
            Some(sum) => sum + value,
            None => value,
        });
        let mut gradients = loss.backward();
        y.grad_remove(&mut gradients).map(Tensor::into_primitive)
    }
}

/// Starts to copy a tensor to the device of the next stage.
fn moved<B: AutodiffBackend<Device = WgslDevice>>(
    tensor: Gradient<B>,
    device: &WgslDevice,
) -> Gradient<B> {
    let tensor = tensor.tensor();
    TensorPrimitive::Float(B::InnerBackend::float_to_device(tensor, device))
}
