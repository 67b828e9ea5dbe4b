//! The optimizer that unscales gradients and skips steps with an infinite one.

use burn::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};
use burn::record::{PrecisionSettings, Record};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use super::state::OnDevice;
use super::{GradScaler, SCALES, ScaledGradients, ScaledStep, ScalerState, check_max_norm};
use crate::backend::Wgsl;

/// An optimizer for scaled gradients: see [`GradScaler::wrap`].
#[derive(Debug, Clone)]
pub struct ScaledOptimizer<O> {
    pub(super) optimizer: O,
    pub(super) scaler: GradScaler,
    /// The largest norm of all gradients together.
    pub(super) max_norm: Option<f32>,
}

impl<O> ScaledOptimizer<O> {
    /// Limits the norm of all gradients of a step together, after they are divided by the scale: if it is larger, each
    /// gradient is multiplied by `max_norm` / norm. The norm is the root of the sum of all squares, in f32.
    ///
    /// Burn's own clipping, a setting of its optimizers, limits each gradient by itself.
    ///
    /// # Panics
    ///
    /// Panics unless `max_norm` is a finite number above 0.
    #[must_use]
    pub fn with_max_norm(self, max_norm: f32) -> Self {
        check_max_norm(Some(max_norm));
        Self { max_norm: Some(max_norm), ..self }
    }

    /// Returns whether gradients reach the optimizer as they are.
    fn is_plain(&self) -> bool {
        !self.scaler.is_enabled() && self.max_norm.is_none()
    }

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
        let mut unscaled = Unscaled {
            scaled,
            step: self.scaler.begin_step(self.max_norm),
            grads: GradientsParams::new(),
            parameters: self.scaler.is_enabled().then(GradientsParams::new),
        };
        module.visit(&mut unscaled);
        let Unscaled { step: scaled, grads, parameters, .. } = unscaled;
        let scaled = scaled.end();
        let mut cleared = Cleared { grads, step: &scaled, out: GradientsParams::new() };
        module.visit(&mut cleared);
        let module = step(&mut self.optimizer, module, cleared.out);
        match parameters {
            Some(parameters) => module.map(&mut Restored { parameters, step: scaled }),
            None => module,
        }
    }
}

impl<O, M, B> Optimizer<M, B> for ScaledOptimizer<O>
where
    O: Optimizer<M, B>,
    M: AutodiffModule<B>,
    B: AutodiffBackend<InnerBackend = Wgsl>,
{
    type Record = ScaledRecord<O::Record>;

    fn step(&mut self, lr: LearningRate, module: M, mut grads: GradientsParams) -> M {
        if self.is_plain() {
            return self.optimizer.step(lr, module, grads);
        }
        self.step_with::<B, M>(module, &mut grads, |optimizer, module, grads| {
            optimizer.step(lr, module, grads)
        })
    }

    fn step_multi(&mut self, lr: LearningRate, module: M, mut grads: MultiGradientsParams) -> M {
        if self.is_plain() {
            return self.optimizer.step_multi(lr, module, grads);
        }
        self.step_with::<B, M>(module, &mut grads, |optimizer, module, grads| {
            optimizer.step(lr, module, grads)
        })
    }

    fn to_record(&self) -> Self::Record {
        let state = RecordedState::OnDevice(Box::new(self.scaler.state.lock().clone()));
        ScaledRecord { optimizer: self.optimizer.to_record(), state }
    }

    fn load_record(self, record: Self::Record) -> Self {
        {
            let mut state = self.scaler.state.lock();
            let device = state.scale.device();
            match record.state {
                RecordedState::OnDevice(loaded) => *state = loaded.on_device(&device),
                RecordedState::Read(loaded) if SCALES.contains(&loaded.scale) => {
                    *state = OnDevice::new(loaded, &device);
                }
                RecordedState::Read(ScalerState { scale, .. }) => log::warn!(
                    "the record of an optimizer has the scale {scale:e}; the scaler keeps its own"
                ),
            }
        }
        Self { optimizer: self.optimizer.load_record(record.optimizer), ..self }
    }
}

/// The record of a [`ScaledOptimizer`]: that of the optimizer, and the state of the scaler.
#[derive(Debug, Clone)]
pub struct ScaledRecord<R> {
    optimizer: R,
    state: RecordedState,
}

/// The state in a record. It is on no device before it is loaded.
#[derive(Debug, Clone)]
enum RecordedState {
    OnDevice(Box<OnDevice>),
    Read(ScalerState),
}

impl<B: Backend, R: Record<B>> Record<B> for ScaledRecord<R> {
    /// The optimizer's, the scale, the good and the skipped steps.
    type Item<S: PrecisionSettings> = (R::Item<S>, f32, u32, u32);

    fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
        let ScalerState { scale, good_steps, skipped_steps } = match self.state {
            RecordedState::OnDevice(state) => state.read(),
            RecordedState::Read(state) => state,
        };
        (self.optimizer.into_item::<S>(), scale, good_steps, skipped_steps)
    }

    fn from_item<S: PrecisionSettings>(
        (optimizer, scale, good_steps, skipped_steps): Self::Item<S>,
        device: &B::Device,
    ) -> Self {
        let state = RecordedState::Read(ScalerState { scale, good_steps, skipped_steps });
        Self { optimizer: R::from_item::<S>(optimizer, device), state }
    }
}

/// Where gradients are taken from.
trait TakeGradient {
    /// Removes the gradient of a parameter.
    fn take<const D: usize>(&mut self, id: ParamId) -> Option<Tensor<Wgsl, D>>;
}

impl TakeGradient for GradientsParams {
    fn take<const D: usize>(&mut self, id: ParamId) -> Option<Tensor<Wgsl, D>> {
        self.remove::<Wgsl, D>(id)
    }
}

impl TakeGradient for MultiGradientsParams {
    fn take<const D: usize>(&mut self, id: ParamId) -> Option<Tensor<Wgsl, D>> {
        self.remove::<Wgsl, D>(id).map(|(grad, _)| grad)
    }
}

/// Divides gradients by the scale, and collects them.
struct Unscaled<'a, G> {
    scaled: &'a mut G,
    step: ScaledGradients<'a>,
    grads: GradientsParams,
    /// The parameters with gradients, as they are before the step, if it may be skipped.
    parameters: Option<GradientsParams>,
}

impl<B, G> ModuleVisitor<B> for Unscaled<'_, G>
where
    B: AutodiffBackend<InnerBackend = Wgsl>,
    G: TakeGradient,
{
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(grad) = self.scaled.take::<D>(param.id) else { return };
        let before = param.val().inner();
        self.grads.register(param.id, self.step.unscaled(grad, before.dtype()));
        if let Some(parameters) = &mut self.parameters {
            parameters.register(param.id, before);
        }
    }
}

/// Limits gradients, and replaces those of a step that is skipped.
struct Cleared<'a> {
    grads: GradientsParams,
    step: &'a ScaledStep,
    out: GradientsParams,
}

impl<B: AutodiffBackend<InnerBackend = Wgsl>> ModuleVisitor<B> for Cleared<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(grad) = self.grads.remove::<Wgsl, D>(param.id) {
            self.out.register(param.id, self.step.cleared(grad));
        }
    }
}

/// Puts the parameters back if the step is skipped.
struct Restored {
    parameters: GradientsParams,
    step: ScaledStep,
}

impl<B: AutodiffBackend<InnerBackend = Wgsl>> ModuleMapper<B> for Restored {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let Some(before) = self.parameters.remove::<Wgsl, D>(id) else {
            return Param::from_mapped_value(id, tensor, mapper);
        };
        let requires_grad = tensor.is_require_grad();
        let mut tensor = Tensor::from_inner(self.step.kept(before, tensor.inner()));
        if requires_grad {
            tensor = tensor.require_grad();
        }
        Param::from_mapped_value(id, tensor, mapper)
    }
}
