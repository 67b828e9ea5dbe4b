//! The optimizer that unscales gradients and skips steps with an infinite one.

use burn::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};
use burn::record::{PrecisionSettings, Record};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Bool, DType, FloatDType, Tensor};

use super::state::OnDevice;
use super::{GradScaler, SCALES, ScalerState};
use crate::backend::{Wgsl, WgslTensor};
use crate::device::WgslDevice;

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
        let is_usable = max_norm > 0.0 && max_norm.is_finite();
        assert!(is_usable, "the largest norm is {max_norm}; it must be a finite number above 0");
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
        let scale = self.scaler.state.lock().scale.clone();
        let device = scale.device();
        let mut unscaled = Unscaled {
            scaled,
            device,
            inverse: self.scaler.is_enabled().then(|| scale.recip()),
            grads: GradientsParams::new(),
            parameters: GradientsParams::new(),
            tested: Vec::new(),
            squares: self.max_norm.map(|_| Vec::new()),
        };
        module.visit(&mut unscaled);
        let Unscaled { grads, parameters, tested, squares, .. } = unscaled;
        if grads.is_empty() {
            return step(&mut self.optimizer, module, grads);
        }
        let overflow = self.scaler.is_enabled().then(|| overflow(tested, &device));
        let factor = self.max_norm.zip(squares).map(|(max_norm, squares)| {
            let norm = Tensor::cat(squares, 0).sum().sqrt();
            // 1 for smaller norms. The added number is PyTorch's.
            ((norm + 1e-6).recip() * max_norm).clamp_max(1.0)
        });
        let mut cleared =
            Cleared { grads, factor, overflow: overflow.clone(), out: GradientsParams::new() };
        module.visit(&mut cleared);
        let module = step(&mut self.optimizer, module, cleared.out);
        let Some(overflow) = overflow else { return module };
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
    /// The device of the scale.
    device: WgslDevice,
    /// 1 / scale, if there is a scale.
    inverse: Option<Tensor<Wgsl, 1>>,
    grads: GradientsParams,
    /// The parameters with gradients, as they are before the step.
    parameters: GradientsParams,
    /// What is tested for infinities, by device and type.
    tested: Vec<((WgslDevice, FloatDType), Vec<WgslTensor>)>,
    /// The sum of the squares of each gradient, if the norm of all is limited.
    squares: Option<Vec<Tensor<Wgsl, 1>>>,
}

impl<B, G> ModuleVisitor<B> for Unscaled<'_, G>
where
    B: AutodiffBackend<InnerBackend = Wgsl>,
    G: TakeGradient,
{
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(grad) = self.scaled.take::<D>(param.id) else { return };
        let (before, device) = (param.val().inner(), grad.device());
        let (wide, parameter) = (wide(before.dtype()), before.dtype().into());
        let grad = grad.cast(wide);
        let unscaled = match &self.inverse {
            Some(inverse) => {
                let inverse = inverse.clone().to_device(&device).reshape([1; D]).cast(wide);
                (grad.clone() * inverse).cast(parameter)
            }
            None => grad.clone().cast(parameter),
        };
        // A step may be skipped only if there is a scale.
        if self.inverse.is_some() {
            // In 16 bits, it can be infinite where the scaled gradient is not. Otherwise it is
            // computed later, together with the step.
            let tested = if parameter == wide { grad } else { unscaled.clone() };
            let primitive = tested.into_primitive().tensor();
            match self.tested.iter_mut().find(|(of, _)| *of == (device, parameter)) {
                Some((_, grads)) => grads.push(primitive),
                None => self.tested.push(((device, parameter), vec![primitive])),
            }
            self.parameters.register(param.id, before);
        }
        if let Some(squares) = &mut self.squares {
            let grad = unscaled.clone().cast(FloatDType::F32);
            squares.push((grad.clone() * grad).sum().to_device(&self.device));
        }
        self.grads.register(param.id, unscaled);
    }
}

/// Returns the type in which gradients of a type are multiplied: f32, but for f64, which has digits and a range that
/// f32 lacks.
fn wide(dtype: DType) -> FloatDType {
    if dtype == DType::F64 { FloatDType::F64 } else { FloatDType::F32 }
}

/// Returns whether a gradient is infinite or NaN, on a device.
fn overflow(
    grads: Vec<((WgslDevice, FloatDType), Vec<WgslTensor>)>,
    device: &WgslDevice,
) -> Tensor<Wgsl, 1, Bool> {
    let flags = grads.into_iter().map(|(_, grads)| {
        let found = Tensor::<Wgsl, 1, Bool>::from_primitive(Wgsl::any_not_finite(grads));
        found.to_device(device)
    });
    let mut flags: Vec<_> = flags.collect();
    if flags.len() == 1 { flags.swap_remove(0) } else { Tensor::cat(flags, 0).any() }
}

/// Multiplies gradients by a factor, and replaces them by zeros in a step that is skipped, so that infinities do not
/// reach the state of the optimizer.
struct Cleared {
    grads: GradientsParams,
    factor: Option<Tensor<Wgsl, 1>>,
    /// Whether the step is skipped, if it may be.
    overflow: Option<Tensor<Wgsl, 1, Bool>>,
    out: GradientsParams,
}

impl<B: AutodiffBackend<InnerBackend = Wgsl>> ModuleVisitor<B> for Cleared {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(grad) = self.grads.remove::<Wgsl, D>(param.id) else { return };
        let grad = match &self.factor {
            Some(factor) => {
                // A small factor has few bits in f16.
                let (dtype, wide) = (grad.dtype(), wide(grad.dtype()));
                let factor = factor.clone().to_device(&grad.device()).reshape([1; D]).cast(wide);
                (grad.cast(wide) * factor).cast(dtype)
            }
            None => grad,
        };
        let grad = match &self.overflow {
            Some(overflow) => {
                let overflow = expanded(overflow, &grad);
                grad.mask_fill(overflow, 0)
            }
            None => grad,
        };
        self.out.register(param.id, grad);
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
        // The optimizer may have moved the parameter to the device of its gradient. Under autocast, it computes
        // f32 parameters of 16-bit ones.
        let after = after.cast(before.dtype());
        let before = before.to_device(&after.device());
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
