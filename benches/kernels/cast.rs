//! Conversions between element types.

use burn::tensor::FloatDType;
use burn_wgsl::kernels::cast::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, measure_op, random, random_indices};

const LEN: usize = 1 << 22;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "cast", CASES);
    for (name, dtype) in [("f16", FloatDType::F16), ("bf16", FloatDType::BF16)] {
        measure_op(criterion, &format!("cast/f32_to_{name}/2^22"), LEN, [[LEN]], |[x]| {
            x.cast(dtype)
        });
        measure(criterion, &format!("cast/{name}_to_f32/2^22"), LEN, |device| {
            let x = random([LEN], device).cast(dtype);
            move || x.clone().cast(FloatDType::F32)
        });
    }
    measure_op(criterion, "cast/float_to_int/2^22", LEN, [[LEN]], |[x]| x.int());
    measure(criterion, "cast/int_to_float/2^22", LEN, |device| {
        let x = random_indices(1000, [LEN], device);
        move || x.clone().float()
    });
}
