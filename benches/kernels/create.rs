//! Tensor creation: zeros, a constant, a range.

use burn::tensor::{Int, Tensor};
use burn_wgsl::Wgsl;
use burn_wgsl::kernels::create::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases};

const LEN: usize = 1 << 22;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "create", CASES);
    measure(criterion, "create/zeros/2^22", LEN, |&device| {
        move || Tensor::<Wgsl, 1>::zeros([LEN], &device)
    });
    measure(criterion, "create/full/2^22", LEN, |&device| {
        move || Tensor::<Wgsl, 1>::full([LEN], 1.5, &device)
    });
    measure(criterion, "create/arange/2^22", LEN, |&device| {
        move || Tensor::<Wgsl, 1, Int>::arange(0..LEN as i64, &device)
    });
}
