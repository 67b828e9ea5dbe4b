//! Reading and adding by several indices, and the indices of what is true.

use burn::tensor::IndexingUpdateOp;
use burn_wgsl::kernels::index_nd::CASES;
use criterion::Criterion;

use crate::measure::{indices, measure, random, walk};

const SIDE: usize = 1024;
const PLACES: usize = 1 << 16;

pub fn benches(criterion: &mut Criterion) {
    walk(criterion, "index_nd", CASES);
    measure(criterion, "index_nd/gather/1024x1024-2^16", PLACES, |device| {
        let (x, places) = (random([SIDE, SIDE], device), indices(SIDE, [PLACES, 2], device));
        move || x.clone().gather_nd::<2, 1>(places.clone())
    });
    measure(criterion, "index_nd/gather_rows/1024x1024-4096", 4096 * SIDE, |device| {
        let (x, places) = (random([SIDE, SIDE], device), indices(SIDE, [4096, 1], device));
        move || x.clone().gather_nd::<2, 2>(places.clone())
    });
    measure(criterion, "index_nd/argwhere/1024x1024", SIDE * SIDE, |device| {
        let truths = random([SIDE, SIDE], device).greater_elem(0.0);
        move || truths.clone().argwhere()
    });
    for (name, update) in [("add", IndexingUpdateOp::Add), ("assign", IndexingUpdateOp::Assign)] {
        measure(criterion, &format!("index_nd/scatter_{name}/1024x1024-2^16"), PLACES, |device| {
            let (x, values) = (random([SIDE, SIDE], device), random([PLACES], device));
            let places = indices(SIDE, [PLACES, 2], device);
            move || x.clone().scatter_nd(places.clone(), values.clone(), update)
        });
    }
}
