//! Grid sampling. Burn differentiates the bilinear mode.

use burn_autodiff::Autodiff as BurnAutodiff;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::TensorMetadata;
use burn_backend::ops::{FloatTensorOps, IntTensorOps, InterpolateMode};
use burn_std::{FloatDType, IntDType, Shape, Slice};

use super::kinds::{F, GridSample};
use super::node::node;
use crate::backend::{Wgsl, WgslTensor};

pub(super) fn float_grid_sample_2d<C: CheckpointStrategy>(
    tensor: F,
    grid: F,
    options: GridSample,
) -> F {
    if !matches!(options.mode, InterpolateMode::Nearest) {
        return BurnAutodiff::<Wgsl, C>::float_grid_sample_2d(tensor, grid, options);
    }
    let output = Wgsl::float_grid_sample_2d(
        tensor.primitive.clone(),
        grid.primitive.clone(),
        options.clone(),
    );
    node::<C, _, 2, 2>([tensor, grid], output, options, |[x, grid], options, grad| {
        // Between two steps, the coordinates make no difference.
        let of_grid = Wgsl::float_zeros(grid.shape(), &grid.device(), grid.dtype().into());
        [image_gradient(&x, grid, options, grad), of_grid]
    })
}

/// Adds the gradient of each sample to the pixel that it was read from.
fn image_gradient(
    x: &WgslTensor,
    grid: WgslTensor,
    options: GridSample,
    grad: WgslTensor,
) -> WgslTensor {
    let device = x.device();
    let [n, c, h, w] = x.shape().dims();
    let [_, _, rows, cols] = grad.shape().dims();
    // Sampled like the image, images of row and column numbers tell which pixel a sample is, or
    // zero outside.
    let grid = Wgsl::float_cast(grid, FloatDType::F32);
    let sampled = |len: usize, shape: [usize; 4]| {
        let numbers = Wgsl::int_arange(1..len as i64 + 1, &device, IntDType::I32);
        let numbers = Wgsl::int_reshape(numbers, Shape::from(shape));
        let numbers = Wgsl::int_into_float(numbers, FloatDType::F32);
        let image = Wgsl::float_expand(numbers, Shape::from([n, 1, h, w]));
        let numbers = Wgsl::float_grid_sample_2d(image, grid.clone(), options.clone());
        Wgsl::float_into_int(numbers, IntDType::I32)
    };
    let rows_before = Wgsl::int_sub_scalar(sampled(h, [1, 1, h, 1]), 1.into());
    let pixels = Wgsl::int_mul_scalar(rows_before, (w as i64).into());
    let pixels = Wgsl::int_add(pixels, sampled(w, [1, 1, 1, w]));
    // The pixels from 1 on, and 0 for samples outside.
    let pixels = Wgsl::int_clamp_min(pixels, 0.into());
    let pixels = Wgsl::int_reshape(pixels, Shape::from([n, 1, rows * cols]));
    let pixels = Wgsl::int_expand(pixels, Shape::from([n, c, rows * cols]));
    let grad = Wgsl::float_reshape(grad, Shape::from([n, c, rows * cols]));
    let zeros = Wgsl::float_zeros(Shape::from([n, c, h * w + 1]), &device, grad.dtype().into());
    let sums = Wgsl::float_scatter_add(2, zeros, pixels, grad);
    let inside = [Slice::full(), Slice::full(), Slice::new(1, None, 1)];
    Wgsl::float_reshape(Wgsl::float_slice(sums, &inside), x.shape())
}
