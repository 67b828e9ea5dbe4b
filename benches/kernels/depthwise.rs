//! Depthwise convolutions and their gradients.

use burn_wgsl::kernels::depthwise::CASES;
use criterion::Criterion;

use crate::conv::Conv2d;
use crate::measure::measure_cases;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "depthwise", CASES);
    for (side, kernel, stride) in [(56, 3, 1), (56, 3, 2), (28, 5, 1)] {
        Conv2d { x: [4, 128, side, side], out: 128, kernel, stride, groups: 128 }
            .measure(criterion, "depthwise");
    }
}
