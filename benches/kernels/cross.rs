//! Cross products along the last and the first axis.

use burn_wgsl::kernels::cross::CASES;
use criterion::Criterion;

use crate::measure::{measure_cases, measure_op};

const LEN: usize = 1 << 20;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "cross", CASES);
    measure_op(criterion, "cross/2^20x3", 3 * LEN, [[LEN, 3]; 2], |[a, b]| a.cross(b, 1));
    measure_op(criterion, "cross/3x2^20", 3 * LEN, [[3, LEN]; 2], |[a, b]| a.cross(b, 0));
}
