//! Loss scaling for programs of the port's release of Burn: gradients that are too small for f16 are multiplied along
//! with the loss.
//!
//! A [`GradScaler`] multiplies the loss by a scale, and an optimizer that it [wraps](GradScaler::wrap) divides the
//! gradients by it. If a gradient is infinite or NaN, the step changes no parameter and the scale is halved; after many
//! steps without, it is doubled. Nothing is read back. The rules are those of burn-wgsl's scaler for Burn 0.21, which
//! computes them.
//!
//! ```no_run
//! # use burn::module::Module;
//! # use burn::nn::{Linear, LinearConfig};
//! use burn::optim::{AdamConfig, GradientsParams};
//! # use burn::tensor::{Device, Tensor};
//! use burn_wgsl_scaler::{GradScaler, GradScalerConfig, Precision, autocast};
//!
//! # let device = Device::default().autodiff();
//! # let mut model = LinearConfig::new(512, 512).init(&device);
//! # let x = Tensor::<2>::ones([512, 512], &device);
//! let scaler = GradScaler::new(GradScalerConfig::default(), &device)?;
//! let mut optimizer = scaler.wrap(AdamConfig::new().init());
//! for _ in 0..10 {
//!     let scope = autocast(&device, Precision::F16)?;
//!     let loss = model.forward(x.clone()).powi_scalar(2).mean();
//!     let gradients = GradientsParams::from_grads(scaler.scale(loss).backward(), &model);
//!     drop(scope);
//!     model = optimizer.step(1e-3, model, gradients);
//! }
//! # Ok::<(), burn_wgsl_scaler::OtherBackend>(())
//! ```

use std::fmt;

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::tensor::{Device, FloatDType, Tensor};
use burn_tensor_021::{Tensor as Tensor021, TensorPrimitive};
use port::Port;
use port::wgsl::scaler as own;
use port::wgsl::{PrecisionScope, Wgsl, WgslDevice};

pub use port::wgsl::Precision;
pub use port::wgsl::scaler::{GradScalerConfig, SCALES, ScalerState};

/// A device is one of another backend than burn-wgsl.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherBackend(String);

impl fmt::Display for OtherBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is not a device of burn-wgsl: use Device::default(), and see that Cargo.toml patches Burn's backend",
            self.0
        )
    }
}

impl std::error::Error for OtherBackend {}

/// Returns burn-wgsl's name of a device, for its own functions.
///
/// # Errors
///
/// Returns an error if the device is one of another backend.
pub fn wgsl_device(device: &Device) -> Result<WgslDevice, OtherBackend> {
    let probe = Tensor::<1>::empty([1], device).inner();
    let probe = probe.try_into_primitive::<Port>();
    let probe = probe.map_err(|_| OtherBackend(format!("{device:?}")))?;
    Ok(burn::backend::TensorMetadata::device(&probe).0)
}

/// Begins a scope in which products, convolutions and attention on a device are computed in 16 bits, until the
/// result is dropped. The backward pass must be inside the scope.
///
/// # Errors
///
/// Returns an error if the device is one of another backend.
pub fn autocast(device: &Device, precision: Precision) -> Result<PrecisionScope, OtherBackend> {
    Ok(port::wgsl::autocast(&wgsl_device(device)?, precision))
}

/// Scales losses and gradients: see the [crate](self). Clones share the scale.
#[derive(Debug, Clone)]
pub struct GradScaler(own::GradScaler);

impl GradScaler {
    /// Creates a scaler on a device.
    ///
    /// # Errors
    ///
    /// Returns an error if the device is one of another backend.
    ///
    /// # Panics
    ///
    /// Panics if the configuration is out of range, as `GradScalerConfig::init`, or if the device fails.
    pub fn new(config: GradScalerConfig, device: &Device) -> Result<Self, OtherBackend> {
        Ok(Self(config.init(&wgsl_device(device)?)))
    }

    /// Multiplies a loss by the scale, in f32; returns it as it is if the scaler is disabled.
    pub fn scale<const D: usize>(&self, loss: Tensor<D>) -> Tensor<D> {
        if !self.0.is_enabled() {
            return loss;
        }
        let scale = to_release(self.0.device_scale()).to_device(&loss.device().inner());
        let scale = scale.reshape([1; D]);
        // A constant takes on the loss's autodiff.
        loss.cast(FloatDType::F32) * scale
    }

    /// Wraps an optimizer: its steps divide gradients by the scale, and change no parameter if one is infinite or
    /// NaN. Each optimizer needs a scaler of its own. In a step that changes no parameter, the optimizer sees
    /// gradients of 0.
    pub fn wrap(&self, optimizer: ModuleOptimizer) -> ScaledOptimizer {
        ScaledOptimizer { optimizer, scaler: self.0.clone(), max_norm: None }
    }

    /// Reads the state back, for a checkpoint. Its text is one line, which parses again.
    ///
    /// # Panics
    ///
    /// Panics if the device fails.
    pub fn state(&self) -> ScalerState {
        self.0.state()
    }

    /// Goes on from a state.
    ///
    /// # Panics
    ///
    /// Panics if the scale is not one of [`SCALES`], or if the device fails.
    pub fn load_state(&self, state: ScalerState) {
        self.0.load_state(state);
    }
}

/// An optimizer for scaled gradients: see [`GradScaler::wrap`].
#[derive(Clone)]
pub struct ScaledOptimizer {
    /// The optimizer, whose record is saved and loaded beside the scaler's state.
    pub optimizer: ModuleOptimizer,
    scaler: own::GradScaler,
    max_norm: Option<f32>,
}

impl ScaledOptimizer {
    /// Limits the norm of all gradients of a step together, after they are divided by the scale.
    ///
    /// # Panics
    ///
    /// Panics unless `max_norm` is a finite number above 0.
    #[must_use]
    pub fn with_max_norm(self, max_norm: f32) -> Self {
        let is_usable = max_norm > 0.0 && max_norm.is_finite();
        assert!(is_usable, "the largest norm is {max_norm}; it must be a finite number above 0");
        Self { max_norm: Some(max_norm), ..self }
    }

    /// Returns whether gradients reach the optimizer as they are.
    fn is_plain(&self) -> bool {
        !self.scaler.is_enabled() && self.max_norm.is_none()
    }

    /// Takes a step with the gradients of a scaled loss, as `ModuleOptimizer::step`.
    ///
    /// # Panics
    ///
    /// Panics if a parameter is on a device of another backend, or a device fails.
    pub fn step<M: Module>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        module: M,
        gradients: GradientsParams,
    ) -> M {
        if self.is_plain() {
            return self.optimizer.step(lr, module, gradients);
        }
        self.step_with(lr.into(), module, gradients)
    }

    /// Takes a step with the gradients of scaled losses on several devices.
    ///
    /// # Panics
    ///
    /// As [`step`](Self::step).
    pub fn step_multi<M: Module>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        module: M,
        gradients: MultiGradientsParams,
    ) -> M {
        if self.is_plain() {
            return self.optimizer.step_multi(lr, module, gradients);
        }
        self.step_with(lr.into(), module, gradients)
    }

    fn step_with<M: Module>(
        &mut self,
        lr: ModuleLearningRate,
        module: M,
        scaled: impl TakeGradient,
    ) -> M {
        let mut unscaled = Unscaled {
            scaled,
            step: self.scaler.begin_step(self.max_norm),
            gradients: GradientsParams::new(),
            parameters: self.scaler.is_enabled().then(GradientsParams::new),
        };
        module.visit(&mut unscaled);
        let Unscaled { step, gradients, parameters, .. } = unscaled;
        let step = step.end();
        let mut cleared = Cleared { gradients, step: &step, out: GradientsParams::new() };
        module.visit(&mut cleared);
        let module = self.optimizer.step(lr, module, cleared.out);
        match parameters {
            Some(parameters) => module.map(&mut Restored { parameters, step }),
            None => module,
        }
    }
}

/// Where gradients are taken from.
trait TakeGradient {
    /// Removes the gradient of a parameter.
    fn take<const D: usize>(&mut self, id: ParamId) -> Option<Tensor<D>>;
}

impl TakeGradient for GradientsParams {
    fn take<const D: usize>(&mut self, id: ParamId) -> Option<Tensor<D>> {
        self.remove(id)
    }
}

impl TakeGradient for MultiGradientsParams {
    fn take<const D: usize>(&mut self, id: ParamId) -> Option<Tensor<D>> {
        self.remove(id).map(|(gradient, _)| gradient)
    }
}

/// Divides gradients by the scale, and collects them.
struct Unscaled<'a, G> {
    scaled: G,
    step: own::ScaledGradients<'a>,
    gradients: GradientsParams,
    /// The parameters with gradients, as they are before the step, if it may be skipped.
    parameters: Option<GradientsParams>,
}

impl<G: TakeGradient> ModuleVisitor for Unscaled<'_, G> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.scaled.take::<D>(param.id) else { return };
        let before = param.val().inner();
        let dtype = to_own(before.clone()).dtype();
        let gradient = to_release(self.step.unscaled(to_own(gradient), dtype));
        self.gradients.register(param.id, gradient);
        if let Some(parameters) = &mut self.parameters {
            parameters.register(param.id, before);
        }
    }
}

/// Limits gradients, and replaces those of a step that is skipped.
struct Cleared<'a> {
    gradients: GradientsParams,
    step: &'a own::ScaledStep,
    out: GradientsParams,
}

impl ModuleVisitor for Cleared<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.remove::<D>(param.id) {
            self.out.register(param.id, to_release(self.step.cleared(to_own(gradient))));
        }
    }
}

/// Puts the parameters back if the step is skipped.
struct Restored {
    parameters: GradientsParams,
    step: own::ScaledStep,
}

impl ModuleMapper for Restored {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let Some(before) = self.parameters.remove::<D>(id) else {
            return Param::from_mapped_value(id, tensor, mapper);
        };
        let strategy = tensor.gradient_checkpointing_strategy();
        let [is_autodiff, requires_grad, is_distributed] =
            [tensor.is_autodiff(), tensor.is_require_grad(), tensor.is_distributed()];
        let mut tensor = to_release(self.step.kept(to_own(before), to_own(tensor)));
        if is_autodiff {
            tensor = Tensor::from_inner(tensor);
        }
        if let Some(strategy) = strategy {
            tensor = tensor.with_gradient_checkpointing_strategy(strategy);
        }
        if requires_grad {
            tensor = tensor.require_grad();
        }
        if is_distributed {
            tensor = tensor.set_distributed(id);
        }
        Param::from_mapped_value(id, tensor, mapper)
    }
}

/// Returns a tensor of the release as one of burn-wgsl's own release, without its gradient.
///
/// # Panics
///
/// Panics if the tensor is on another backend's device.
fn to_own<const D: usize>(tensor: Tensor<D>) -> Tensor021<Wgsl, D> {
    match tensor.inner().try_into_primitive::<Port>() {
        Ok(tensor) => Tensor021::from_primitive(TensorPrimitive::Float(tensor.0)),
        Err(error) => panic!(
            "the parameters and gradients of a scaled optimizer must be on devices of burn-wgsl: {error:?}"
        ),
    }
}

/// Returns a tensor of burn-wgsl's own release as one of the program's release.
fn to_release<const D: usize>(tensor: Tensor021<Wgsl, D>) -> Tensor<D> {
    Tensor::from_primitive::<Port>(port::Tensor(tensor.into_primitive().tensor()))
}
