//! Random number generation for every distribution.

use burn::tensor::{Distribution, Int, Tensor};
use burn_wgsl::Wgsl;
use burn_wgsl::kernels::random::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases};

const LEN: usize = 1 << 22;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "random", CASES);
    for (name, distribution) in [
        ("uniform", Distribution::Uniform(-1.0, 1.0)),
        ("normal", Distribution::Normal(0.0, 1.0)),
        ("bernoulli", Distribution::Bernoulli(0.5)),
    ] {
        measure(criterion, &format!("random/{name}/2^22"), LEN, |&device| {
            move || Tensor::<Wgsl, 1>::random([LEN], distribution, &device)
        });
    }
    measure(criterion, "random/ints/2^22", LEN, |&device| {
        move || Tensor::<Wgsl, 1, Int>::random([LEN], Distribution::Uniform(0.0, 1000.0), &device)
    });
}
