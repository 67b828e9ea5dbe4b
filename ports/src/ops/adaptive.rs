//! Adaptive average pooling in three dimensions, which Burn 0.21 does not have: in two dimensions,
//! and then along the first.

use burn_backend_021::ops::{FloatTensorOps, ModuleOps};
use burn_backend_021::{Shape, TensorMetadata};
use burn_wgsl::{Wgsl, WgslTensor};

/// The shapes before and after pooling height and width, and depth, of images `[batch, channels,
/// depth, height, width]`.
struct Shapes {
    /// `[batch, channels * depth, height, width]`.
    planes: Shape,
    /// `[batch, channels, depth, out height * out width]`.
    lines: Shape,
    /// `[batch, channels, out depth, out height, out width]`.
    output: Shape,
}

impl Shapes {
    fn new(input: &Shape, [depth, height, width]: [usize; 3]) -> Self {
        let (batch, channels) = (input[0], input[1]);
        Self {
            planes: Shape::new([batch, channels * input[2], input[3], input[4]]),
            lines: Shape::new([batch, channels, input[2], height * width]),
            output: Shape::new([batch, channels, depth, height, width]),
        }
    }
}

/// Averages images over windows that share each axis as evenly as possible.
pub(super) fn adaptive_avg_pool3d(x: WgslTensor, output_size: [usize; 3]) -> WgslTensor {
    let [depth, height, width] = output_size;
    let shapes = Shapes::new(&x.shape(), output_size);
    let planes = Wgsl::float_reshape(x, shapes.planes);
    let pooled = Wgsl::adaptive_avg_pool2d(planes, [height, width]);
    let lines = Wgsl::float_reshape(pooled, shapes.lines);
    let pooled = Wgsl::adaptive_avg_pool2d(lines, [depth, height * width]);
    Wgsl::float_reshape(pooled, shapes.output)
}

/// Returns the gradient for `x` from that of the result.
pub(super) fn adaptive_avg_pool3d_backward(x: WgslTensor, grad: WgslTensor) -> WgslTensor {
    let (shape, output) = (x.shape(), grad.shape());
    let [depth, height, width] = [output[2], output[3], output[4]];
    let shapes = Shapes::new(&shape, [depth, height, width]);
    // Only the shape counts.
    let lines = Wgsl::float_empty(shapes.lines, &Wgsl::float_device(&x), x.dtype().into());
    let of_lines = Shape::new([shape[0], shape[1], depth, height * width]);
    let grad = Wgsl::adaptive_avg_pool2d_backward(lines, Wgsl::float_reshape(grad, of_lines));
    let of_planes = Shape::new([shape[0], shape[1] * shape[2], height, width]);
    let planes = Wgsl::float_reshape(x, shapes.planes);
    let grad = Wgsl::adaptive_avg_pool2d_backward(planes, Wgsl::float_reshape(grad, of_planes));
    Wgsl::float_reshape(grad, shape)
}
