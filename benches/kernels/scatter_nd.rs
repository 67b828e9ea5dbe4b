//! Scatter with several indices per element or row.

use burn::tensor::IndexingUpdateOp;
use burn_wgsl::kernels::scatter_nd::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, random, random_indices};

const SIDE: usize = 1024;
const POINTS: usize = 1 << 16;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "scatter_nd", CASES);
    for (name, update) in [("add", IndexingUpdateOp::Add), ("assign", IndexingUpdateOp::Assign)] {
        measure(criterion, &format!("scatter_nd/{name}/1024x1024-2^16"), POINTS, |device| {
            let (x, values) = (random([SIDE, SIDE], device), random([POINTS], device));
            let indices = random_indices(SIDE, [POINTS, 2], device);
            move || x.clone().scatter_nd(indices.clone(), values.clone(), update)
        });
    }
}
