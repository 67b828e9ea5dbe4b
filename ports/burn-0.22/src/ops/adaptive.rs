//! Adaptive average pooling in three dimensions, which Burn 0.21 does not have: a product with a matrix of weights
//! along each axis.

use burn_backend_021::ops::FloatTensorOps;
use burn_backend_021::{FloatDType, Shape, TensorData, TensorMetadata};
use burn_wgsl::{Wgsl, WgslTensor};

/// Averages `[batch, channels, depth, height, width]` over windows that share each axis as evenly as possible.
pub(super) fn adaptive_avg_pool3d(x: WgslTensor, output_size: [usize; 3]) -> WgslTensor {
    let mut x = x;
    for (axis, output) in output_size.into_iter().enumerate() {
        let weights = weights(&x, 2 + axis, output, Direction::Forward);
        x = along(x, 2 + axis, weights);
    }
    x
}

/// Returns the gradient for `x` from that of the result.
pub(super) fn adaptive_avg_pool3d_backward(x: &WgslTensor, grad: WgslTensor) -> WgslTensor {
    let mut grad = grad;
    for axis in 2..5 {
        let output = grad.shape()[axis];
        let weights = weights(x, axis, output, Direction::Backward);
        grad = along(grad, axis, weights);
    }
    grad
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Forward,
    Backward,
}

/// Returns the weights of each element of an axis of `x` in each window, `[input, output]`, or transposed for the
/// gradient.
fn weights(x: &WgslTensor, axis: usize, output: usize, direction: Direction) -> WgslTensor {
    let input = x.shape()[axis];
    let mut values = vec![0.0f32; input * output];
    for window in 0..output {
        let (start, end) = (window * input / output, ((window + 1) * input).div_ceil(output));
        for element in start..end {
            let index = match direction {
                Direction::Forward => element * output + window,
                Direction::Backward => window * input + element,
            };
            values[index] = 1.0 / (end - start) as f32;
        }
    }
    let size = if direction == Direction::Forward { [input, output] } else { [output, input] };
    let weights = Wgsl::float_from_data(TensorData::new(values, size), &Wgsl::float_device(x));
    Wgsl::float_cast(weights, FloatDType::from(x.dtype()))
}

/// Multiplies the lines along an axis by a matrix.
fn along(x: WgslTensor, axis: usize, matrix: WgslTensor) -> WgslTensor {
    let last = x.rank() - 1;
    let x = Wgsl::float_swap_dims(x, axis, last);
    let (mut shape, size) = (x.shape(), matrix.shape());
    let rows = shape.num_elements() / size[0];
    let product = Wgsl::float_matmul(Wgsl::float_reshape(x, Shape::new([rows, size[0]])), matrix);
    shape[last] = size[1];
    Wgsl::float_swap_dims(Wgsl::float_reshape(product, shape), axis, last)
}
