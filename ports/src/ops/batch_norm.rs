//! Batch normalisation with the statistics of the batch, which Burn 0.21 composes of other ops:
//!
//! ```text
//! h = (x - mean) / sqrt(variance + epsilon)
//! y = h * gamma + beta
//!
//! beta's gradient  = sum of g
//! gamma's gradient = sum of g * h
//! x's gradient     = gamma / sqrt(variance + epsilon) * (g - mean of g - h * mean of (g * h))
//! ```
//!
//! (S. Ioffe and C. Szegedy, Batch Normalization, 2015). Means are over all axes but the second. Everything is computed
//! in f32 for tensors of 16 bits, which are read as they are stored. Results have the wider type of `x` and `gamma`, so
//! that those of a 16-bit `x` under autocast are f32, as everywhere.

use burn_backend_021::ops::FloatTensorOps;
use burn_backend_021::{DType, FloatDType, Scalar, Shape, TensorMetadata};
use burn_wgsl::{Wgsl, WgslTensor};

/// Computes the result for `x` `[batch, channels, ..]`, and the means and variances of the channels.
pub(super) fn batch_norm_train(
    x: WgslTensor,
    gamma: WgslTensor,
    beta: WgslTensor,
    epsilon: f64,
) -> [WgslTensor; 3] {
    let (dtype, axes) = (wider(x.dtype(), gamma.dtype()), averaged(&x));
    let channels = Shape::new([x.shape()[1]]);
    let x = wide(x);
    let mean = Wgsl::mean_axes(x.clone(), &axes);
    let centred = Wgsl::float_sub(x, mean.clone());
    let squares = Wgsl::float_mul(centred.clone(), centred.clone());
    let variance = Wgsl::mean_axes(squares, &axes);
    let [gamma, beta] = [gamma, beta].map(|of| Wgsl::float_reshape(wide(of), variance.shape()));
    let normalised = Wgsl::float_div(centred, deviation(variance.clone(), epsilon));
    let output = Wgsl::float_add(Wgsl::float_mul(normalised, gamma), beta);
    let statistic = |of| stored(Wgsl::float_reshape(of, channels.clone()), dtype);
    [stored(output, dtype), statistic(mean), statistic(variance)]
}

/// Computes the gradients for `x`, `gamma` and `beta` from that of the result.
pub(super) fn batch_norm_train_backward(
    x: WgslTensor,
    gamma: WgslTensor,
    [mean, variance]: [WgslTensor; 2],
    epsilon: f64,
    grad: WgslTensor,
) -> [WgslTensor; 3] {
    let ([of_x, of_gamma], axes) = ([x.dtype(), gamma.dtype()], averaged(&x));
    let (channels, elements) = (x.shape()[1], x.shape().num_elements());
    let shape = Shape::from(
        (0..x.rank()).map(|axis| if axis == 1 { channels } else { 1 }).collect::<Vec<_>>(),
    );
    let [gamma, mean, variance] =
        [gamma, mean, variance].map(|of| Wgsl::float_reshape(wide(of), shape.clone()));
    let (x, grad) = (wide(x), wide(grad));
    let scale = Wgsl::float_recip(deviation(variance, epsilon));
    let normalised = Wgsl::float_mul(Wgsl::float_sub(x, mean), scale.clone());
    let grad_mean = Wgsl::mean_axes(grad.clone(), &axes);
    let projection = Wgsl::mean_axes(Wgsl::float_mul(grad.clone(), normalised.clone()), &axes);
    let sum = |mean: &WgslTensor| {
        let mean = Wgsl::float_reshape(mean.clone(), Shape::new([channels]));
        let sum = match elements / channels.max(1) {
            // Means of nothing are NaN.
            0 => Wgsl::float_zeros(mean.shape(), &Wgsl::float_device(&mean), FloatDType::F32),
            count => Wgsl::float_mul_scalar(mean, Scalar::from(count as f64)),
        };
        stored(sum, of_gamma)
    };
    let [beta_grad, gamma_grad] = [&grad_mean, &projection].map(sum);
    let along = Wgsl::float_mul(normalised, projection);
    let rest = Wgsl::float_sub(Wgsl::float_sub(grad, grad_mean), along);
    let x_grad = Wgsl::float_mul(rest, Wgsl::float_mul(gamma, scale));
    [stored(x_grad, of_x), gamma_grad, beta_grad]
}

/// Returns the axes over which means are taken.
fn averaged(x: &WgslTensor) -> Vec<usize> {
    (0..x.rank()).filter(|&axis| axis != 1).collect()
}

fn deviation(variance: WgslTensor, epsilon: f64) -> WgslTensor {
    Wgsl::float_sqrt(Wgsl::float_add_scalar(variance, epsilon.into()))
}

/// Returns the wider of two types of floats: f32 for f16 and bf16.
fn wider(a: DType, b: DType) -> DType {
    match (a, b) {
        _ if a == b => a,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ => DType::F32,
    }
}

/// Returns a tensor in f32, or in f64.
fn wide(tensor: WgslTensor) -> WgslTensor {
    if tensor.dtype() == DType::F64 { tensor } else { Wgsl::float_cast(tensor, FloatDType::F32) }
}

fn stored(tensor: WgslTensor, dtype: DType) -> WgslTensor {
    Wgsl::float_cast(tensor, dtype.into())
}
