//! Grid sampling of images.

use burn::tensor::ops::InterpolateMode;
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::kernels::grid_sample::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, random};

const SIDE: usize = 128;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "grid_sample", CASES);
    for (name, mode) in
        [("nearest", InterpolateMode::Nearest), ("bilinear", InterpolateMode::Bilinear)]
    {
        measure(
            criterion,
            &format!("grid_sample/{name}/4x16x128x128"),
            4 * 16 * SIDE * SIDE,
            |device| {
                let x = random([4, 16, SIDE, SIDE], device);
                let grid =
                    Tensor::random([4, SIDE, SIDE, 2], Distribution::Uniform(-1.0, 1.0), device);
                let mode = mode.clone();
                move || x.clone().grid_sample_2d(grid.clone(), mode.clone())
            },
        );
    }
}
