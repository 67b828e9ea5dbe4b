//! Loss scaling: gradients that are too small for f16 are multiplied along with the loss.
//!
//! A [`GradScaler`] multiplies the loss by a scale, and an optimizer that it [wraps](GradScaler::wrap)
//! divides the gradients by it. If a gradient is infinite or NaN, the step changes no parameter and
//! the scale is halved; after many steps without, it is doubled. All of this happens on the device:
//! nothing is read back.
//!
//! The method and its defaults are those of PyTorch's `GradScaler` (P. Micikevicius et al., Mixed
//! precision training, 2018).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use burn::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Bool, FloatDType, Int, Tensor};
use parking_lot::Mutex;

use crate::backend::{Wgsl, WgslTensor};
use crate::device::WgslDevice;

/// How the scale of a [`GradScaler`] changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradScalerConfig {
    /// The scale of the first step [default: 65536].
    pub initial_scale: f32,
    /// What the scale is multiplied by after [`growth_interval`](Self::growth_interval) steps
    /// [default: 2].
    pub growth_factor: f32,
    /// What it is multiplied by after a step with an infinite or NaN gradient [default: 0.5].
    pub backoff_factor: f32,
    /// How many steps in a row without one let the scale grow [default: 2000].
    pub growth_interval: u32,
}

impl Default for GradScalerConfig {
    fn default() -> Self {
        Self {
            initial_scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
        }
    }
}

impl GradScalerConfig {
    /// Creates a scaler on a device.
    ///
    /// # Panics
    ///
    /// Panics if the initial scale is not positive and finite, if the growth factor is not above 1, if
    /// the backoff factor is not between 0 and 1, or if the device fails.
    pub fn init(self, device: &WgslDevice) -> GradScaler {
        assert!(
            self.initial_scale > 0.0 && self.initial_scale.is_finite(),
            "the initial scale is {}; it must be positive and finite",
            self.initial_scale
        );
        assert!(
            self.growth_factor > 1.0 && self.backoff_factor > 0.0 && self.backoff_factor < 1.0,
            "the factors are {} and {}; the first must be above 1, the second between 0 and 1",
            self.growth_factor,
            self.backoff_factor
        );
        let state = ScalerState { scale: self.initial_scale, good_steps: 0, skipped_steps: 0 };
        GradScaler { config: self, state: Arc::new(Mutex::new(OnDevice::new(state, device))) }
    }
}

/// The state of a [`GradScaler`], for a checkpoint. Its text is one line, which parses again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalerState {
    /// What the loss is multiplied by.
    pub scale: f32,
    /// The steps since the scale changed.
    pub good_steps: u32,
    /// The steps that changed no parameter.
    pub skipped_steps: u32,
}

/// The words before the numbers in the text of a [`ScalerState`].
const FORMAT: &str = "burn-wgsl GradScaler 1:";

impl fmt::Display for ScalerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scale, good_steps, skipped_steps } = self;
        write!(f, "{FORMAT} scale {scale} good {good_steps} skipped {skipped_steps}")
    }
}

/// A text that is no [`ScalerState`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidScalerState(String);

impl fmt::Display for InvalidScalerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(f, "{text:?} is not the state of a GradScaler, or of another version")
    }
}

impl std::error::Error for InvalidScalerState {}

impl FromStr for ScalerState {
    type Err = InvalidScalerState;

    fn from_str(text: &str) -> Result<Self, InvalidScalerState> {
        let parse = || -> Option<Self> {
            let words: Vec<&str> = text.trim().strip_prefix(FORMAT)?.split_whitespace().collect();
            let ["scale", scale, "good", good, "skipped", skipped] = words[..] else {
                return None;
            };
            let state = Self {
                scale: scale.parse().ok()?,
                good_steps: good.parse().ok()?,
                skipped_steps: skipped.parse().ok()?,
            };
            (state.scale > 0.0 && state.scale.is_finite()).then_some(state)
        };
        parse().ok_or_else(|| InvalidScalerState(text.chars().take(80).collect()))
    }
}

/// The state on the device: tensors of one element.
#[derive(Debug)]
struct OnDevice {
    scale: Tensor<Wgsl, 1>,
    good_steps: Tensor<Wgsl, 1, Int>,
    skipped_steps: Tensor<Wgsl, 1, Int>,
}

impl OnDevice {
    fn new(state: ScalerState, device: &WgslDevice) -> Self {
        let count = |count: u32| Tensor::from_ints([clamped(count)], device);
        Self {
            scale: Tensor::from_floats([state.scale], device),
            good_steps: count(state.good_steps),
            skipped_steps: count(state.skipped_steps),
        }
    }

    /// Changes the scale after a step.
    fn update(&mut self, overflow: Tensor<Wgsl, 1, Bool>, config: &GradScalerConfig) {
        let good_steps = (self.good_steps.clone() + 1).mask_fill(overflow.clone(), 0);
        let grows = good_steps.clone().greater_equal_elem(clamped(config.growth_interval));
        let grown = self.scale.clone() * config.growth_factor;
        // The scale stays finite.
        let grown = grown.clone().mask_where(grown.is_inf(), self.scale.clone());
        let scale = self.scale.clone().mask_where(grows.clone(), grown);
        let smaller = self.scale.clone() * config.backoff_factor;
        self.scale = scale.mask_where(overflow.clone(), smaller);
        self.good_steps = good_steps.mask_fill(grows, 0);
        self.skipped_steps = self.skipped_steps.clone() + overflow.int();
    }
}

/// Returns a count as the device stores it.
fn clamped(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Scales losses and gradients: see the [module](self). Clones share the scale.
#[derive(Debug, Clone)]
pub struct GradScaler {
    config: GradScalerConfig,
    state: Arc<Mutex<OnDevice>>,
}

impl GradScaler {
    /// Multiplies a loss by the scale, in f32.
    pub fn scale<B, const D: usize>(&self, loss: Tensor<B, D>) -> Tensor<B, D>
    where
        B: AutodiffBackend<InnerBackend = Wgsl>,
    {
        let scale = Tensor::<B, 1>::from_inner(self.state.lock().scale.clone());
        let scale = scale.to_device(&loss.device());
        loss.cast(FloatDType::F32) * scale.reshape([1; D])
    }

    /// Wraps an optimizer: its steps divide gradients by the scale, and change no parameter if one is
    /// infinite or NaN. Gradients that are accumulated must all have been computed with one scale, so
    /// accumulate between steps.
    ///
    /// In a step that changes no parameter, the optimizer sees gradients of 0: momenta decay as in a
    /// step without a gradient, and its counts of steps go on.
    pub fn wrap<O>(&self, optimizer: O) -> ScaledOptimizer<O> {
        ScaledOptimizer { optimizer, scaler: self.clone() }
    }

    /// Reads the state back.
    ///
    /// # Panics
    ///
    /// Panics if the device fails.
    pub fn state(&self) -> ScalerState {
        let state = self.state.lock();
        let count = |count: &Tensor<Wgsl, 1, Int>| count.clone().into_data().iter::<u32>().next();
        ScalerState {
            scale: state.scale.clone().into_data().iter::<f32>().next().unwrap_or(1.0),
            good_steps: count(&state.good_steps).unwrap_or(0),
            skipped_steps: count(&state.skipped_steps).unwrap_or(0),
        }
    }

    /// Goes on from a state.
    ///
    /// # Panics
    ///
    /// Panics if the device fails.
    pub fn load_state(&self, state: ScalerState) {
        let mut current = self.state.lock();
        *current = OnDevice::new(state, &current.scale.device());
    }
}

/// An optimizer for scaled gradients: see [`GradScaler::wrap`].
#[derive(Debug, Clone)]
pub struct ScaledOptimizer<O> {
    optimizer: O,
    scaler: GradScaler,
}

impl<O> ScaledOptimizer<O> {
    /// Takes a step with scaled gradients.
    fn step_with<B, M>(
        &mut self,
        module: M,
        scaled: &mut impl TakeGradient,
        step: impl FnOnce(&mut O, M, GradientsParams) -> M,
    ) -> M
    where
        B: AutodiffBackend<InnerBackend = Wgsl>,
        M: AutodiffModule<B>,
    {
        let inverse = self.scaler.state.lock().scale.clone().recip();
        let mut unscaled = Unscaled {
            scaled,
            inverse,
            grads: GradientsParams::new(),
            parameters: GradientsParams::new(),
            tested: Vec::new(),
        };
        module.visit(&mut unscaled);
        let Unscaled { grads, parameters, tested, inverse, .. } = unscaled;
        if tested.is_empty() {
            return step(&mut self.optimizer, module, grads);
        }
        let overflow = overflow(tested, &inverse.device());
        let mut cleared =
            Cleared { grads, overflow: overflow.clone(), out: GradientsParams::new() };
        module.visit(&mut cleared);
        let module = step(&mut self.optimizer, module, cleared.out);
        let module = module.map(&mut Restored { parameters, overflow: overflow.clone() });
        self.scaler.state.lock().update(overflow, &self.scaler.config);
        module
    }
}

impl<O, M, B> Optimizer<M, B> for ScaledOptimizer<O>
where
    O: Optimizer<M, B>,
    M: AutodiffModule<B>,
    B: AutodiffBackend<InnerBackend = Wgsl>,
{
    type Record = O::Record;

    fn step(&mut self, lr: LearningRate, module: M, mut grads: GradientsParams) -> M {
        self.step_with::<B, M>(module, &mut grads, |optimizer, module, grads| {
            optimizer.step(lr, module, grads)
        })
    }

    fn step_multi(&mut self, lr: LearningRate, module: M, mut grads: MultiGradientsParams) -> M {
        self.step_with::<B, M>(module, &mut grads, |optimizer, module, grads| {
            optimizer.step(lr, module, grads)
        })
    }

    fn to_record(&self) -> Self::Record {
        self.optimizer.to_record()
    }

    fn load_record(self, record: Self::Record) -> Self {
        Self { optimizer: self.optimizer.load_record(record), scaler: self.scaler }
    }
}

/// Where gradients are taken from.
trait TakeGradient {
    /// Removes the gradient of a parameter.
    fn take_f32<const D: usize>(&mut self, id: ParamId) -> Option<Tensor<Wgsl, D>>;
}

impl TakeGradient for GradientsParams {
    fn take_f32<const D: usize>(&mut self, id: ParamId) -> Option<Tensor<Wgsl, D>> {
        self.remove::<Wgsl, D>(id).map(|grad| grad.cast(FloatDType::F32))
    }
}

impl TakeGradient for MultiGradientsParams {
    fn take_f32<const D: usize>(&mut self, id: ParamId) -> Option<Tensor<Wgsl, D>> {
        self.remove::<Wgsl, D>(id).map(|(grad, _)| grad.cast(FloatDType::F32))
    }
}

/// Divides gradients by the scale, and collects them.
struct Unscaled<'a, G> {
    scaled: &'a mut G,
    /// 1 / scale.
    inverse: Tensor<Wgsl, 1>,
    grads: GradientsParams,
    /// The parameters with gradients, as they are before the step.
    parameters: GradientsParams,
    /// The scaled gradients, by their device.
    tested: Vec<(WgslDevice, Vec<WgslTensor>)>,
}

impl<B, G> ModuleVisitor<B> for Unscaled<'_, G>
where
    B: AutodiffBackend<InnerBackend = Wgsl>,
    G: TakeGradient,
{
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(grad) = self.scaled.take_f32::<D>(param.id) else { return };
        let device = grad.device();
        let primitive = grad.clone().into_primitive().tensor();
        match self.tested.iter_mut().find(|(of, _)| *of == device) {
            Some((_, grads)) => grads.push(primitive),
            None => self.tested.push((device, vec![primitive])),
        }
        let inverse = self.inverse.clone().to_device(&device).reshape([1; D]);
        self.grads.register(param.id, grad * inverse);
        self.parameters.register(param.id, param.val().inner());
    }
}

/// Returns whether a gradient is infinite or NaN, on a device.
fn overflow(
    grads: Vec<(WgslDevice, Vec<WgslTensor>)>,
    device: &WgslDevice,
) -> Tensor<Wgsl, 1, Bool> {
    let flags = grads.into_iter().map(|(_, grads)| {
        let found = Tensor::<Wgsl, 1, Bool>::from_primitive(Wgsl::any_not_finite(grads));
        found.to_device(device)
    });
    let mut flags: Vec<_> = flags.collect();
    if flags.len() == 1 { flags.swap_remove(0) } else { Tensor::cat(flags, 0).any() }
}

/// Replaces gradients by zeros, so that infinities do not reach the state of the optimizer.
struct Cleared {
    grads: GradientsParams,
    overflow: Tensor<Wgsl, 1, Bool>,
    out: GradientsParams,
}

impl<B: AutodiffBackend<InnerBackend = Wgsl>> ModuleVisitor<B> for Cleared {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(grad) = self.grads.remove::<Wgsl, D>(param.id) else { return };
        let overflow = expanded(&self.overflow, &grad);
        self.out.register(param.id, grad.mask_fill(overflow, 0));
    }
}

/// Puts the parameters back.
struct Restored {
    parameters: GradientsParams,
    overflow: Tensor<Wgsl, 1, Bool>,
}

impl<B: AutodiffBackend<InnerBackend = Wgsl>> ModuleMapper<B> for Restored {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let Some(before) = self.parameters.remove::<Wgsl, D>(id) else {
            return Param::from_mapped_value(id, tensor, mapper);
        };
        let requires_grad = tensor.is_require_grad();
        let after = tensor.inner();
        let overflow = expanded(&self.overflow, &after);
        let mut tensor = Tensor::from_inner(after.mask_where(overflow, before));
        if requires_grad {
            tensor = tensor.require_grad();
        }
        Param::from_mapped_value(id, tensor, mapper)
    }
}

/// Returns the flag for each element of a tensor.
fn expanded<const D: usize>(
    flag: &Tensor<Wgsl, 1, Bool>,
    tensor: &Tensor<Wgsl, D>,
) -> Tensor<Wgsl, D, Bool> {
    flag.clone().to_device(&tensor.device()).reshape([1; D]).expand(tensor.shape())
}
