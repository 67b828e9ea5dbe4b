//! What a scaler does to the gradients of a step.

use burn_backend::DType;
use burn_tensor::{Bool, FloatDType, Tensor};

use super::GradScaler;
use crate::backend::{Wgsl, WgslTensor};
use crate::device::WgslDevice;

/// The gradients of one step with a [`GradScaler`], for an optimizer that the scaler cannot
/// [wrap](GradScaler::wrap): one of another crate, or of another release of Burn. Each gradient is
/// [unscaled](Self::unscaled); the step [ends](Self::end), which changes the scale; then each gradient is
/// [cleared](ScaledStep::cleared), the optimizer takes its step, and each parameter is [kept](ScaledStep::kept).
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::scaler::GradScalerConfig;
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// let device = WgslDevice::default();
/// let scaler = GradScalerConfig { initial_scale: 8.0, ..GradScalerConfig::default() }.init(&device);
/// let parameter = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0], &device);
/// let gradient = Tensor::<Wgsl, 1>::from_floats([8.0, f32::INFINITY], &device);
///
/// let mut gradients = scaler.begin_step(None);
/// let gradient = gradients.unscaled(gradient, parameter.dtype());
/// let step = gradients.end();
/// let after = parameter.clone() - step.cleared(gradient);
/// let after = step.kept(parameter, after);
/// assert_eq!(after.into_data().to_vec::<f32>().unwrap(), [1.0, 2.0]); // The step is skipped.
/// assert_eq!(scaler.state().scale, 4.0);
/// ```
#[derive(Debug)]
#[must_use = "the scale changes, and a step is skipped, only if the step ends"]
pub struct ScaledGradients<'a> {
    scaler: &'a GradScaler,
    /// The device of the scale.
    device: WgslDevice,
    /// 1 / scale, if there is a scale.
    inverse: Option<Tensor<Wgsl, 1>>,
    /// The largest norm of all gradients together.
    max_norm: Option<f32>,
    /// What is tested for infinities, by device and type.
    tested: Vec<((WgslDevice, FloatDType), Vec<WgslTensor>)>,
    /// The sum of the squares of each gradient, if the norm of all is limited.
    squares: Vec<Tensor<Wgsl, 1>>,
}

impl<'a> ScaledGradients<'a> {
    pub(super) fn new(scaler: &'a GradScaler, max_norm: Option<f32>) -> Self {
        let scale = scaler.state.lock().scale.clone();
        let device = scale.device();
        let inverse = scaler.is_enabled().then(|| scale.recip());
        Self { scaler, device, inverse, max_norm, tested: Vec::new(), squares: Vec::new() }
    }

    /// Divides a gradient by the scale. Returns it in the type of its parameter.
    ///
    /// # Panics
    ///
    /// Panics if the type is no type of floats, or the device fails.
    pub fn unscaled<const D: usize>(
        &mut self,
        grad: Tensor<Wgsl, D>,
        parameter: DType,
    ) -> Tensor<Wgsl, D> {
        let device = grad.device();
        let (wide, parameter) = (wide(parameter), FloatDType::from(parameter));
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
        }
        if self.max_norm.is_some() {
            let grad = unscaled.clone().cast(FloatDType::F32);
            self.squares.push((grad.clone() * grad).sum().to_device(&self.device));
        }
        unscaled
    }

    /// Decides on the step, and changes the scale, before the optimizer takes the step. Nothing is read back. Without
    /// gradients, there is no step, and the scale stays.
    pub fn end(self) -> ScaledStep {
        let Self { scaler, device, tested, squares, max_norm, .. } = self;
        let overflow = (!tested.is_empty()).then(|| overflow(tested, &device));
        if let Some(overflow) = &overflow {
            scaler.state.lock().update(overflow.clone(), &scaler.config);
        }
        let factor = max_norm.filter(|_| !squares.is_empty()).map(|max_norm| {
            let norm = Tensor::cat(squares, 0).sum().sqrt();
            // 1 for smaller norms. The added number is PyTorch's.
            ((norm + 1e-6).recip() * max_norm).clamp_max(1.0)
        });
        ScaledStep { factor, overflow }
    }
}

/// A step that begins: see [`ScaledGradients`].
#[derive(Debug)]
#[must_use = "gradients are cleared, and parameters kept, by it"]
pub struct ScaledStep {
    /// What each gradient is multiplied by, if the norm of all is limited.
    factor: Option<Tensor<Wgsl, 1>>,
    /// Whether the step is skipped, if it may be.
    overflow: Option<Tensor<Wgsl, 1, Bool>>,
}

impl ScaledStep {
    /// Returns an unscaled gradient for the optimizer: limited, if the norm of all is, and zeros in a step that is
    /// skipped, so that infinities do not reach the state of the optimizer.
    pub fn cleared<const D: usize>(&self, grad: Tensor<Wgsl, D>) -> Tensor<Wgsl, D> {
        let grad = match &self.factor {
            Some(factor) => {
                // A small factor has few bits in f16.
                let (dtype, wide) = (grad.dtype(), wide(grad.dtype()));
                let factor = factor.clone().to_device(&grad.device()).reshape([1; D]).cast(wide);
                (grad.cast(wide) * factor).cast(dtype)
            }
            None => grad,
        };
        match &self.overflow {
            Some(overflow) => {
                let overflow = expanded(overflow, &grad);
                grad.mask_fill(overflow, 0)
            }
            None => grad,
        }
    }

    /// Returns a parameter after the step: as it was before, if the step is skipped.
    pub fn kept<const D: usize>(
        &self,
        before: Tensor<Wgsl, D>,
        after: Tensor<Wgsl, D>,
    ) -> Tensor<Wgsl, D> {
        let Some(overflow) = &self.overflow else { return after };
        let overflow = expanded(overflow, &after);
        // The optimizer may have moved the parameter to the device of its gradient. Under autocast, it computes
        // f32 parameters of 16-bit ones.
        let after = after.cast(before.dtype());
        let before = before.to_device(&after.device());
        after.mask_where(overflow, before)
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

/// Returns the flag for each element of a tensor.
fn expanded<const D: usize>(
    flag: &Tensor<Wgsl, 1, Bool>,
    tensor: &Tensor<Wgsl, D>,
) -> Tensor<Wgsl, D, Bool> {
    flag.clone().to_device(&tensor.device()).reshape([1; D]).expand(tensor.shape())
}
