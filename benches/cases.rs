//! Every case that the tests walk, timed on every device of this machine: `cargo bench --bench cases -- float_sum`.
//!
//! The shapes are those of the tests, small and awkward: what shows is what a call costs. `benches/kernels.rs` has the large ones.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use burn::tensor::backend::Backend;
use burn_wgsl::backend::call::{Kept, call_again};
use burn_wgsl::kernels::cases::{self, Case};
use burn_wgsl::{Wgsl, WgslDevice};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn cases(criterion: &mut Criterion) {
    let devices = [WgslDevice::Gpu(0), WgslDevice::Software, WgslDevice::Cpu];
    let devices: Vec<_> = devices.into_iter().filter(|device| device.place().is_ok()).collect();
    let mut by_op: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in cases::all() {
        by_op.entry(case.op).or_default().push(case);
    }
    for (op, cases) in by_op {
        let mut group = criterion.benchmark_group(op);
        group.sample_size(10);
        group.warm_up_time(Duration::from_millis(100));
        group.measurement_time(Duration::from_millis(300));
        for (index, case) in cases.into_iter().enumerate() {
            for device in &devices {
                group.bench_function(BenchmarkId::new(format!("case {index}"), device), |bencher| {
                    let mut kept = Kept::default();
                    bencher.iter(|| {
                        black_box(call_again::<Wgsl>(case, device, &mut kept));
                        Wgsl::sync(device).expect("the device is alive");
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, cases);
criterion_main!(benches);
