//! Cumulative ops along rows, along columns, and along one long row.

use burn_wgsl::kernels::scan::CASES;
use criterion::Criterion;

use crate::measure::{measure_cases, measure_op};

const LEN: usize = 2048 * 2048;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "scan", CASES);
    for (name, shape, dim) in [
        ("rows/2048x2048", [2048, 2048], 1),
        ("columns/2048x2048", [2048, 2048], 0),
        ("rows/1x2^22", [1, LEN], 1),
    ] {
        measure_op(criterion, &format!("scan/cumsum_{name}"), LEN, [shape], |[x]| x.cumsum(dim));
    }
    measure_op(criterion, "scan/cumprod_rows/2048x2048", LEN, [[2048, 2048]], |[x]| x.cumprod(1));
    measure_op(criterion, "scan/cummax_rows/2048x2048", LEN, [[2048, 2048]], |[x]| x.cummax(1));
}
