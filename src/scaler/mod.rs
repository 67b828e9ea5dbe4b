//! Loss scaling: gradients that are too small for f16 are multiplied along with the loss.
//!
//! A [`GradScaler`] multiplies the loss by a scale, and an optimizer that it [wraps](GradScaler::wrap)
//! divides the gradients by it. If a gradient is infinite or NaN, the step changes no parameter and
//! the scale is halved; after many steps without, it is doubled. All of this happens on the device:
//! nothing is read back.
//!
//! The method and its defaults are those of PyTorch's `GradScaler` (P. Micikevicius et al., Mixed
//! precision training, 2018).

#[cfg(feature = "train")]
mod optimizer;
mod state;
mod step;

use std::sync::Arc;

use burn_backend::ExecutionError;
use burn_tensor::backend::AutodiffBackend;
use burn_tensor::{FloatDType, Tensor};
use parking_lot::Mutex;

#[cfg(feature = "train")]
pub use optimizer::{ScaledOptimizer, ScaledRecord};
pub use state::{InvalidScalerState, SCALES, ScalerState};
use state::{OnDevice, check_scale};
pub use step::{ScaledGradients, ScaledStep};

use crate::backend::Wgsl;
use crate::device::WgslDevice;

/// How the scale of a [`GradScaler`] changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradScalerConfig {
    /// Whether the scaler scales losses and skips steps [default: `true`]. If not, one training loop
    /// serves f16, and f32 and bf16, which need no scale. [`ScaledOptimizer::with_max_norm`] limits
    /// the norm in any case.
    pub enabled: bool,
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
            enabled: true,
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
    /// Panics if the initial scale is not one of [`SCALES`], if the growth factor is not above 1, if the
    /// backoff factor is not between 0 and 1, if the growth interval is 0, or if the device fails.
    pub fn init(self, device: &WgslDevice) -> GradScaler {
        check_scale(self.initial_scale);
        assert!(
            self.growth_factor > 1.0 && self.backoff_factor > 0.0 && self.backoff_factor < 1.0,
            "the factors are {} and {}; the first must be above 1, the second between 0 and 1",
            self.growth_factor,
            self.backoff_factor
        );
        assert!(self.growth_interval > 0, "the growth interval is 0 steps; it must be at least 1");
        let state = ScalerState { scale: self.initial_scale, good_steps: 0, skipped_steps: 0 };
        GradScaler { config: self, state: Arc::new(Mutex::new(OnDevice::new(state, device))) }
    }
}

/// Scales losses and gradients: see the [module](self). Clones share the scale.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::{AdamConfig, GradientsParams, Optimizer};
/// use burn::tensor::Tensor;
/// use burn_wgsl::scaler::GradScalerConfig;
/// use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast};
///
/// type B = Autodiff<Wgsl>;
///
/// let device = WgslDevice::default();
/// let scaler = GradScalerConfig::default().init(&device);
/// let model: Linear<B> = LinearConfig::new(4, 1).init(&device);
/// let mut optimizer = scaler.wrap(AdamConfig::new().init());
/// let x = Tensor::<B, 2>::ones([8, 4], &device);
/// let loss = {
///     let _scope = autocast(&device, Precision::F16);
///     model.forward(x).powi_scalar(2).mean()
/// };
/// let gradients = GradientsParams::from_grads(scaler.scale(loss).backward(), &model);
/// let model: Linear<B> = optimizer.step(1e-3, model, gradients);
/// # drop(model);
/// ```
#[derive(Debug, Clone)]
pub struct GradScaler {
    config: GradScalerConfig,
    state: Arc<Mutex<OnDevice>>,
}

impl GradScaler {
    /// Returns whether the scaler scales losses and skips steps: [`GradScalerConfig::enabled`].
    pub fn is_enabled(&self) -> bool {
        self.config.enabled
    }

    /// Multiplies a loss by the scale, in f32; returns it as it is if the scaler is disabled.
    pub fn scale<B, const D: usize>(&self, loss: Tensor<B, D>) -> Tensor<B, D>
    where
        B: AutodiffBackend<InnerBackend = Wgsl>,
    {
        if !self.config.enabled {
            return loss;
        }
        let scale = Tensor::<B, 1>::from_inner(self.state.lock().scale.clone());
        let scale = scale.to_device(&loss.device());
        loss.cast(FloatDType::F32) * scale.reshape([1; D])
    }

    /// Wraps an optimizer: its steps divide gradients by the scale, and change no parameter if one is
    /// infinite or NaN. Gradients that are accumulated must all have been computed with one scale, so
    /// accumulate between steps.
    ///
    /// A step changes the scale, so an optimizer needs a scaler of its own, and each loss the scale of the
    /// optimizer that it is for. A clone of an optimizer shares the scale.
    ///
    /// The optimizer's record has the state of the scaler too, so a checkpoint of both is one of the optimizer.
    ///
    /// In a step that changes no parameter, the optimizer sees gradients of 0: momenta decay as in a
    /// step without a gradient, and its counts of steps go on.
    #[cfg(feature = "train")]
    pub fn wrap<O>(&self, optimizer: O) -> ScaledOptimizer<O> {
        ScaledOptimizer { optimizer, scaler: self.clone(), max_norm: None }
    }

    /// Returns the scale, on its device.
    pub fn device_scale(&self) -> Tensor<Wgsl, 1> {
        self.state.lock().scale.clone()
    }

    /// Begins a step of an optimizer that the scaler does not wrap. `max_norm` limits the norm of all gradients
    /// together: see [`ScaledOptimizer::with_max_norm`].
    ///
    /// # Panics
    ///
    /// Panics unless `max_norm` is a finite number above 0.
    pub fn begin_step(&self, max_norm: Option<f32>) -> ScaledGradients<'_> {
        check_max_norm(max_norm);
        ScaledGradients::new(self, max_norm)
    }

    /// Reads the state back.
    ///
    /// # Panics
    ///
    /// Panics if the device fails, and in a browser, which cannot wait: see [`state_async`](Self::state_async).
    pub fn state(&self) -> ScalerState {
        self.state.lock().read()
    }

    /// Reads the state back without blocking the thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the device fails.
    pub async fn state_async(&self) -> Result<ScalerState, ExecutionError> {
        let state = self.state.lock().clone();
        state.read_async().await
    }

    /// Goes on from a state.
    ///
    /// # Panics
    ///
    /// Panics if the scale is not one of [`SCALES`], or if the device fails.
    pub fn load_state(&self, state: ScalerState) {
        check_scale(state.scale);
        let mut current = self.state.lock();
        *current = OnDevice::new(state, &current.scale.device());
    }
}

/// Panics unless the largest norm is a finite number above 0.
fn check_max_norm(max_norm: Option<f32>) {
    if let Some(max_norm) = max_norm {
        let is_usable = max_norm > 0.0 && max_norm.is_finite();
        assert!(is_usable, "the largest norm is {max_norm}; it must be a finite number above 0");
    }
}
