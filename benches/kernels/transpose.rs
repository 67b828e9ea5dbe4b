//! Transposing copies, which move the innermost axis.

use burn_wgsl::kernels::transpose::CASES;
use criterion::Criterion;

use crate::measure::{measure_cases, measure_op};

const LEN: usize = 1 << 22;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "transpose", CASES);
    measure_op(criterion, "transpose/2048x2048", LEN, [[2048, 2048]], |[x]| {
        x.transpose().reshape([LEN])
    });
    for (name, shape, axes) in [
        ("transpose/channels_last/16x64x64x64", [16, 64, 64, 64], [0, 2, 3, 1]),
        ("transpose/channels_first/16x64x64x64", [16, 64, 64, 64], [0, 3, 1, 2]),
        ("transpose/heads/8x1024x8x64", [8, 1024, 8, 64], [0, 2, 1, 3]),
    ] {
        measure_op(criterion, name, LEN, [shape], |[x]| x.permute(axes).reshape([LEN]));
    }
}
