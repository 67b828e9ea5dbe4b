//! Sums, extremes and their places: along rows, along columns, in the middle, of everything.

use burn_wgsl::kernels::reduce::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_op, random, walk};

const SQUARE: [usize; 2] = [2048, 2048];
const LEN: usize = 2048 * 2048;

pub fn benches(criterion: &mut Criterion) {
    walk(criterion, "reduce", CASES);
    for (name, dim) in [("rows", 1), ("columns", 0)] {
        let name = |op| format!("reduce/{op}_{name}/2048x2048");
        measure_op(criterion, &name("sum"), LEN, [SQUARE], |[x]| x.sum_dim(dim));
        measure_op(criterion, &name("max"), LEN, [SQUARE], |[x]| x.max_dim(dim));
        measure_op(criterion, &name("argmax"), LEN, [SQUARE], |[x]| x.argmax(dim));
        measure_op(criterion, &name("var"), LEN, [SQUARE], |[x]| x.var(dim));
    }
    measure_op(criterion, "reduce/sum/2^22", LEN, [[LEN]], |[x]| x.sum());
    measure_op(criterion, "reduce/max/2^22", LEN, [[LEN]], |[x]| x.max());
    measure_op(criterion, "reduce/sum_middle/64x1024x64", LEN, [[64, 1024, 64]], |[x]| {
        x.sum_dim(1)
    });
    measure(criterion, "reduce/any/2048x2048", LEN, |device| {
        let truths = random(SQUARE, device).greater_elem(9.0);
        move || truths.clone().any_dim(1)
    });
}
