//! Activations that are computed again in the backward pass, in place of being kept.

use std::fmt;

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;

use super::cut::{Gradient, Step, add_gradients, compute_pending, create_parameters, gradients_of};
use crate::autocast::{autocast, current_precision};
use crate::backend::{RandomState, random_state, set_random_state};
use crate::device::WgslDevice;

/// A chain of segments of a model, of which each keeps only its input. The backward pass computes a segment again, with
/// the same random numbers and precision, just before it needs what is in it (T. Chen et al., Training deep nets with
/// sublinear memory cost, 2016).
///
/// Segments need the memory of their inputs and of the activations of one segment, and the time of a second forward
/// pass. Inputs of the model, masks and labels are captured by the closures.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::Tensor;
/// use burn_wgsl::train::Segments;
/// use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
///
/// type B = Autodiff<Wgsl>;
/// let device = WgslDevice::default();
/// let layers: Vec<Linear<B>> = (0..4).map(|_| LinearConfig::new(8, 8).init(&device)).collect();
/// let x = Tensor::<B, 2>::ones([2, 8], &device);
///
/// let mut segments = Segments::start(&device, &layers[0], move |layer| layer.forward(x.clone()).tanh());
/// for layer in &layers[1..] {
///     segments = segments.then(layer, |layer, x| layer.forward(x).tanh());
/// }
/// let (y, segments) = segments.end();
/// let gradients = segments.backward(y.powi_scalar(2).mean(), &layers);
/// assert_eq!(gradients.len(), 8);
/// ```
///
/// What a segment depends on must be its module or come from the segment before: other tensors and modules that its
/// closure captures get no gradients. Batch normalisation updates its running statistics in both passes. Random numbers
/// that another thread draws on the device during a backward pass may be those of a segment.
pub struct Segments<B: AutodiffBackend, const D: usize> {
    value: Tensor<B::InnerBackend, D>,
    steps: Vec<Step<B>>,
}

impl<B: AutodiffBackend, const D: usize> fmt::Debug for Segments<B, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments").field("len", &self.steps.len()).finish_non_exhaustive()
    }
}

/// What a segment is computed with.
struct Conditions {
    device: WgslDevice,
    random: Option<RandomState>,
    precision: crate::Precision,
}

impl Conditions {
    fn now(device: WgslDevice) -> Self {
        let precision = current_precision(&device);
        Self { random: random_state(&device).ok(), precision, device }
    }

    /// Computes a segment under these conditions. Later random numbers are those that they would be without.
    fn again<R>(self, segment: impl FnOnce() -> R) -> R {
        let _precision = autocast(&self.device, self.precision);
        let _after = RandomStateAfter(self.device, random_state(&self.device).ok());
        set(&self.device, self.random);
        segment()
    }
}

/// Sets the random numbers of a device at its end, also if there is a panic.
struct RandomStateAfter(WgslDevice, Option<RandomState>);

impl Drop for RandomStateAfter {
    fn drop(&mut self) {
        set(&self.0, self.1);
    }
}

fn set(device: &WgslDevice, state: Option<RandomState>) {
    if let Some(state) = state {
        // A device that is gone fails in the segment.
        let _ = set_random_state(device, state);
    }
}

impl<B: AutodiffBackend<Device = WgslDevice>, const D: usize> Segments<B, D> {
    /// Begins on a device with a segment that computes its input itself, such as an embedding of tokens.
    pub fn start<M, F>(device: &WgslDevice, module: &M, forward: F) -> Self
    where
        M: AutodiffModule<B> + 'static,
        F: Fn(&M) -> Tensor<B, D> + Send + 'static,
    {
        create_parameters(module);
        let without_graph = module.clone().no_grad();
        let device = *device;
        let conditions = Conditions::now(device);
        let value = forward(&without_graph).inner();
        compute_pending(&device);
        let module = module.clone();
        let step: Step<B> = Box::new(move |gradient, sum| {
            let y = conditions.again(|| forward(&module));
            add_gradients(sum, &module, gradients_of(y, gradient));
            compute_pending(&device);
            None
        });
        Self { value, steps: vec![step] }
    }

    /// Adds a segment.
    pub fn then<const E: usize, M, F>(mut self, module: &M, forward: F) -> Segments<B, E>
    where
        M: AutodiffModule<B> + 'static,
        F: Fn(&M, Tensor<B, D>) -> Tensor<B, E> + Send + 'static,
    {
        create_parameters(module);
        let without_graph = module.clone().no_grad();
        let x = self.value;
        let device = x.device();
        let conditions = Conditions::now(device);
        let value = forward(&without_graph, Tensor::from_inner(x.clone())).inner();
        compute_pending(&device);
        let module = module.clone();
        self.steps.push(Box::new(move |gradient, sum| {
            let x = Tensor::<B, D>::from_inner(x).require_grad();
            let y = conditions.again(|| forward(&module, x.clone()));
            let mut gradients = gradients_of(y, gradient);
            let gradient = x.grad_remove(&mut gradients);
            add_gradients(sum, &module, gradients);
            compute_pending(&device);
            gradient.map(Tensor::into_primitive)
        }));
        Segments { value, steps: self.steps }
    }

    /// Adds a segment that is a chain of segments: it keeps its input, and the backward pass keeps the inputs of its
    /// segments.
    pub fn then_segments<const E: usize, M, F>(mut self, module: &M, chain: F) -> Segments<B, E>
    where
        M: AutodiffModule<B> + 'static,
        F: Fn(&M, Self) -> Segments<B, E> + Send + 'static,
    {
        create_parameters(module);
        let x = self.value;
        let conditions = Conditions::now(x.device());
        let inner = |x: Tensor<B::InnerBackend, D>| Self { value: x, steps: Vec::new() };
        let value = chain(module, inner(x.clone())).value;
        let module = module.clone();
        self.steps.push(Box::new(move |gradient, sum| {
            let segments = conditions.again(|| chain(&module, inner(x)));
            backward::<B>(segments.steps, Some(gradient), sum)
        }));
        Segments { value, steps: self.steps }
    }

    /// Returns the result of the last segment, from which the loss is computed, and what propagates its gradient back.
    pub fn end(self) -> (Tensor<B, D>, SegmentsBackward<B, D>) {
        let y = Tensor::<B, D>::from_inner(self.value).require_grad();
        (y.clone(), SegmentsBackward { y, steps: self.steps })
    }
}

/// The backward pass of [`Segments`].
pub struct SegmentsBackward<B: AutodiffBackend, const D: usize> {
    y: Tensor<B, D>,
    steps: Vec<Step<B>>,
}

impl<B: AutodiffBackend, const D: usize> fmt::Debug for SegmentsBackward<B, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentsBackward").field("len", &self.steps.len()).finish_non_exhaustive()
    }
}

impl<B: AutodiffBackend, const D: usize> SegmentsBackward<B, D> {
    /// Computes the gradients of a loss with respect to the parameters of the segments and to the other ones of the
    /// model.
    pub fn backward<M: AutodiffModule<B>>(self, loss: Tensor<B, 1>, model: &M) -> GradientsParams {
        let mut gradients = loss.backward();
        let gradient = self.y.grad_remove(&mut gradients).map(Tensor::into_primitive);
        let mut sum = GradientsParams::from_grads(gradients, model);
        // The segments must not keep the result of the last one.
        drop(self.y);
        backward::<B>(self.steps, gradient, &mut sum);
        sum
    }
}

/// Propagates a gradient through segments, the last one first.
fn backward<B: AutodiffBackend>(
    steps: Vec<Step<B>>,
    mut gradient: Option<Gradient<B>>,
    sum: &mut GradientsParams,
) -> Option<Gradient<B>> {
    for step in steps.into_iter().rev() {
        // Without one, the loss does not depend on the segment.
        gradient = step(gradient?, sum);
    }
    gradient
}
