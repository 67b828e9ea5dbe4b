//! Normalisation.

use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_flex::{Flex, FlexTensor};
use burn_std::{DType, FloatDType, Shape};

use super::reduce::{float_mean_dim, float_sum_dim};

/// Divides each row by its root mean square and multiplies it by `gamma` `[width]`.
pub(crate) fn rms_norm(x: FlexTensor, gamma: FlexTensor, epsilon: f64) -> FlexTensor {
    let dtype = x.dtype();
    if is_half(dtype) {
        let y = rms_norm(in_f32(x), in_f32(gamma), epsilon);
        return Flex::float_cast(y, dtype.into());
    }
    let y = divided_by_rms(x, epsilon);
    let gamma = as_row(gamma, y.rank());
    Flex::float_mul(y, gamma)
}

/// Normalises each row to mean 0 and variance 1, multiplies it by `gamma` `[width]` and adds `beta`
/// `[width]`.
///
/// burn-flex computes the variance as a difference of two squares, which leaves two correct digits
/// if the mean is 100 standard deviations.
pub(crate) fn layer_norm(
    x: FlexTensor,
    gamma: FlexTensor,
    beta: Option<FlexTensor>,
    epsilon: f64,
) -> FlexTensor {
    let (axis, dtype) = (x.rank() - 1, x.dtype());
    if is_half(dtype) {
        let y = layer_norm(in_f32(x), in_f32(gamma), beta.map(in_f32), epsilon);
        return Flex::float_cast(y, dtype.into());
    }
    // A large mean is rounded, so the centred rows have a small mean. The second pass subtracts it.
    let y = divided_by_rms(centred(centred(x)), epsilon);
    let y = Flex::float_mul(y, as_row(gamma, axis + 1));
    match beta {
        Some(beta) => Flex::float_add(y, as_row(beta, axis + 1)),
        None => y,
    }
}

/// Computes the gradients of [`rms_norm`] with respect to `x` and `gamma`.
pub(crate) fn rms_norm_backward(
    x: FlexTensor,
    gamma: FlexTensor,
    output_grad: FlexTensor,
    epsilon: f64,
) -> (FlexTensor, FlexTensor) {
    let dtype = x.dtype();
    if is_half(dtype) {
        let (x, gamma) = rms_norm_backward(in_f32(x), in_f32(gamma), in_f32(output_grad), epsilon);
        return (Flex::float_cast(x, dtype.into()), Flex::float_cast(gamma, dtype.into()));
    }
    let (x_grad, gamma_grad, _) = backward(x, gamma, output_grad, epsilon, |d| d);
    (x_grad, gamma_grad)
}

/// Computes the gradients of [`layer_norm`] with respect to `x`, `gamma` and `beta`.
pub(crate) fn layer_norm_backward(
    x: FlexTensor,
    gamma: FlexTensor,
    output_grad: FlexTensor,
    epsilon: f64,
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let dtype = x.dtype();
    if is_half(dtype) {
        let [x, gamma, output_grad] = [x, gamma, output_grad].map(in_f32);
        let (x, gamma, beta) = layer_norm_backward(x, gamma, output_grad, epsilon);
        let narrow = |tensor| Flex::float_cast(tensor, dtype.into());
        return (narrow(x), narrow(gamma), narrow(beta));
    }
    backward(centred(centred(x)), gamma, output_grad, epsilon, centred)
}

/// Computes the gradients of a norm of rows that are centred already if the norm centres them.
/// `center` is the gradient of the centring: (d - mean(d) - h mean(d h)) / deviation for
/// d = grad * gamma and normalised rows h.
fn backward(
    x: FlexTensor,
    gamma: FlexTensor,
    output_grad: FlexTensor,
    epsilon: f64,
    center: fn(FlexTensor) -> FlexTensor,
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let axis = x.rank() - 1;
    let deviation = root_mean_square(x.clone(), epsilon);
    let h = Flex::float_div(x, deviation.clone());
    let d = Flex::float_mul(output_grad.clone(), as_row(gamma.clone(), axis + 1));
    let mean = float_mean_dim(Flex::float_mul(d.clone(), h.clone()), axis);
    let difference = Flex::float_sub(center(d), Flex::float_mul(h.clone(), mean));
    let of_rows = |tensor: FlexTensor| {
        let width = gamma.shape().num_elements();
        let rows = tensor.shape().num_elements() / width.max(1);
        let rows = Flex::float_reshape(tensor.to_contiguous(), Shape::from([rows, width]));
        Flex::float_reshape(float_sum_dim(rows, 0), Shape::from([width]))
    };
    (
        Flex::float_div(difference, deviation),
        of_rows(Flex::float_mul(output_grad.clone(), h)),
        of_rows(output_grad),
    )
}

/// Returns whether squares of a type overflow, or lose most digits.
fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

fn in_f32(tensor: FlexTensor) -> FlexTensor {
    Flex::float_cast(tensor, FloatDType::F32)
}

/// Subtracts the mean of each row.
fn centred(x: FlexTensor) -> FlexTensor {
    let mean = float_mean_dim(x.clone(), x.rank() - 1);
    Flex::float_sub(x, mean)
}

/// Returns the root mean square of each row, with `epsilon` added under the root.
fn root_mean_square(x: FlexTensor, epsilon: f64) -> FlexTensor {
    let axis = x.rank() - 1;
    let mean = float_mean_dim(Flex::float_mul(x.clone(), x), axis);
    Flex::float_sqrt(Flex::float_add_scalar(mean, epsilon.into()))
}

/// Divides each row by its root mean square, with `epsilon` added under the root.
fn divided_by_rms(x: FlexTensor, epsilon: f64) -> FlexTensor {
    let scale = root_mean_square(x.clone(), epsilon);
    Flex::float_div(x, scale)
}

/// Reshapes a vector to `[1, .., 1, len]` with `rank` axes.
fn as_row(vector: FlexTensor, rank: usize) -> FlexTensor {
    let mut shape = vec![1; rank];
    shape[rank - 1] = vector.shape().num_elements();
    Flex::float_reshape(vector, Shape::from(shape))
}
