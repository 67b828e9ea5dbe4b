//! Matrix times column vector, row vector times matrix, and dot product.

use burn_wgsl::kernels::matvec::CASES;
use criterion::Criterion;

use crate::measure::{measure_cases, measure_op};

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "matvec", CASES);
    for (m, k, n) in [(4096, 4096, 1), (1, 4096, 4096), (1, 1 << 24, 1)] {
        let name = format!("matvec/{m}x{k}x{n}");
        measure_op(criterion, &name, 2 * m * k * n, [[m, k], [k, n]], |[a, b]| a.matmul(b));
    }
}
