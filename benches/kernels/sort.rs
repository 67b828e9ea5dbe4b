//! Sort of many rows, one long row and columns; argsort; top-k.

use burn_wgsl::kernels::sort::CASES;
use criterion::Criterion;

use crate::measure::{measure_cases, measure_op};

const ROWS: [usize; 2] = [512, 1024];
const LEN: usize = 512 * 1024;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "sort", CASES);
    measure_op(criterion, "sort/512x1024", LEN, [ROWS], |[x]| x.sort(1));
    measure_op(criterion, "sort/1x2^19", LEN, [[1, LEN]], |[x]| x.sort(1));
    measure_op(criterion, "sort/columns/1024x512", LEN, [[1024, 512]], |[x]| x.sort(0));
    measure_op(criterion, "sort/argsort/512x1024", LEN, [ROWS], |[x]| x.argsort(1));
    measure_op(criterion, "sort/top8/512x1024", LEN, [ROWS], |[x]| x.topk(8, 1));
}
