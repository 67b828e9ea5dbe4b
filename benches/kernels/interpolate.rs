//! Upsampling and downsampling of images, and the gradient of upsampling.

use burn::tensor::module::interpolate;
use burn::tensor::ops::{InterpolateMode, InterpolateOptions};
use burn_wgsl::kernels::interpolate::CASES;
use criterion::Criterion;

use crate::measure::{measure_cases, measure_gradients, measure_op};

const X: [usize; 4] = [4, 16, 128, 128];

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "interpolate", CASES);
    for (name, mode) in [
        ("nearest", InterpolateMode::Nearest),
        ("bilinear", InterpolateMode::Bilinear),
        ("bicubic", InterpolateMode::Bicubic),
        ("lanczos3", InterpolateMode::Lanczos3),
    ] {
        let options = InterpolateOptions::new(mode);
        for side in [256, 64] {
            let name = format!("interpolate/{name}/4x16x128x128-{side}x{side}");
            measure_op(criterion, &name, output_len(side), [X], |[x]| {
                interpolate(x, [side; 2], options.clone())
            });
        }
    }
    for (name, mode) in
        [("nearest", InterpolateMode::Nearest), ("bilinear", InterpolateMode::Bilinear)]
    {
        let name = format!("interpolate/{name}_gradient/4x16x128x128-256x256");
        let options = InterpolateOptions::new(mode);
        measure_gradients(criterion, &name, output_len(256), [X], |[x]| {
            interpolate(x, [256; 2], options.clone())
        });
    }
}

/// Returns the number of output elements for images of `side` x `side`.
fn output_len(side: usize) -> usize {
    X[0] * X[1] * side * side
}
