//! Deformable convolutions and their gradients.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module::deform_conv2d;
use burn::tensor::ops::DeformConvOptions;
use burn_wgsl::kernels::deform::CASES;
use criterion::Criterion;

use crate::measure::{measure_cases, measure_gradients, measure_op};

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "deform", CASES);
    // Shapes of input, offset, weight and mask.
    let shapes = [[2, 32, 32, 32], [2, 18, 32, 32], [32, 32, 3, 3], [2, 9, 32, 32]];
    let flops = 2 * 2 * 32 * 32 * 32 * 32 * 9;
    measure_op(criterion, "deform/2x32x32x32-32-3x3", flops, shapes, convolve);
    measure_gradients(criterion, "deform/gradients/2x32x32x32-32-3x3", 3 * flops, shapes, convolve);
}

fn convolve<B: Backend>([x, offset, weight, mask]: [Tensor<B, 4>; 4]) -> Tensor<B, 4> {
    let options = DeformConvOptions::new([1; 2], [1; 2], [1; 2], 1, 1);
    deform_conv2d(x, offset, weight, Some(mask), None, options)
}
