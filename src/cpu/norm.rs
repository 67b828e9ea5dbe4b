//! Normalisation.

use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_flex::{Flex, FlexTensor};
use burn_std::Shape;

/// Divides each row by its root mean square and multiplies it by `gamma` `[width]`.
pub(crate) fn rms_norm(x: FlexTensor, gamma: FlexTensor, epsilon: f64) -> FlexTensor {
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
    let axis = x.rank() - 1;
    let center = |x: FlexTensor| Flex::float_sub(x.clone(), Flex::float_mean_dim(x, axis));
    // A large mean is rounded, so the centred rows have a small mean. The second pass subtracts it.
    let y = divided_by_rms(center(center(x)), epsilon);
    let y = Flex::float_mul(y, as_row(gamma, axis + 1));
    match beta {
        Some(beta) => Flex::float_add(y, as_row(beta, axis + 1)),
        None => y,
    }
}

/// Divides each row by its root mean square, with `epsilon` added under the root.
fn divided_by_rms(x: FlexTensor, epsilon: f64) -> FlexTensor {
    let axis = x.rank() - 1;
    let mean = Flex::float_mean_dim(Flex::float_mul(x.clone(), x.clone()), axis);
    let scale = Flex::float_sqrt(Flex::float_add_scalar(mean, epsilon.into()));
    Flex::float_div(x, scale)
}

/// Reshapes a vector to `[1, .., 1, len]` with `rank` axes.
fn as_row(vector: FlexTensor, rank: usize) -> FlexTensor {
    let mut shape = vec![1; rank];
    shape[rank - 1] = vector.shape().num_elements();
    Flex::float_reshape(vector, Shape::from(shape))
}
