//! Interpolation to the nearest pixel by the centres of pixels, which Burn 0.21 does not have: rows
//! and columns are selected.

use burn_backend_021::ops::{FloatTensorOps, IntTensorOps};
use burn_backend_021::{TensorData, TensorMetadata, get_device_settings};
use burn_wgsl::{Wgsl, WgslTensor};

/// Resizes images `[batch, channels, height, width]`.
pub(super) fn nearest_exact(x: WgslTensor, output_size: [usize; 2]) -> WgslTensor {
    let mut x = x;
    for (axis, output) in output_size.into_iter().enumerate() {
        let sources = sources(&x, x.shape()[2 + axis], output);
        x = Wgsl::float_select(x, 2 + axis, sources);
    }
    x
}

/// Returns the gradient for `x` from that of the result.
pub(super) fn nearest_exact_backward(x: &WgslTensor, grad: WgslTensor) -> WgslTensor {
    let mut grad = grad;
    for axis in 2..4 {
        let mut shape = grad.shape();
        let sources = sources(x, x.shape()[axis], shape[axis]);
        shape[axis] = x.shape()[axis];
        let zeros = Wgsl::float_zeros(shape, &Wgsl::float_device(x), x.dtype().into());
        grad = Wgsl::float_select_add(zeros, axis, sources, grad);
    }
    grad
}

/// Returns for each of `output` pixels the one of `input` pixels in which its centre is.
fn sources(x: &WgslTensor, input: usize, output: usize) -> WgslTensor {
    assert!(input > 0, "interpolate: an image without pixels has no nearest one");
    let scale = input as f64 / output as f64;
    let source = |pixel: usize| ((pixel as f64 + 0.5) * scale) as usize;
    let sources: Vec<i32> = (0..output).map(|pixel| source(pixel).min(input - 1) as i32).collect();
    let device = Wgsl::float_device(x);
    let sources = Wgsl::int_from_data(TensorData::new(sources, [output]), &device);
    Wgsl::int_cast(sources, get_device_settings::<Wgsl>(&device).int_dtype)
}
