//! Reductions along rows, columns and a middle axis, and of the whole tensor.

use burn_wgsl::kernels::reduce::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, measure_op, random};

const SQUARE: [usize; 2] = [2048, 2048];
const LEN: usize = 2048 * 2048;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "reduce", CASES);
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
        let mask = random(SQUARE, device).greater_elem(9.0);
        move || mask.clone().any_dim(1)
    });
}
