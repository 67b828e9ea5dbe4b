//! Gather with several indices per element or row.

use burn_wgsl::kernels::gather_nd::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, random, random_indices};

const SIDE: usize = 1024;
const POINTS: usize = 1 << 16;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "gather_nd", CASES);
    measure(criterion, "gather_nd/elements/1024x1024-2^16", POINTS, |device| {
        let (x, indices) =
            (random([SIDE, SIDE], device), random_indices(SIDE, [POINTS, 2], device));
        move || x.clone().gather_nd::<2, 1>(indices.clone())
    });
    measure(criterion, "gather_nd/rows/1024x1024-4096", 4096 * SIDE, |device| {
        let (x, indices) = (random([SIDE, SIDE], device), random_indices(SIDE, [4096, 1], device));
        move || x.clone().gather_nd::<2, 2>(indices.clone())
    });
}
