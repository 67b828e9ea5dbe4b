//! What the families share: devices, random tensors, and the ways to measure. Every call is waited for.

use std::collections::BTreeMap;
use std::hint::black_box;

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};
use burn_wgsl::backend::call::{Kept, call_again, call_extension};
use burn_wgsl::kernels::cases::Case;
use burn_wgsl::{Wgsl, WgslDevice};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};

/// The backend whose tensors know their gradients.
pub type Ad = Autodiff<Wgsl>;

/// The devices of this machine.
fn devices() -> impl Iterator<Item = WgslDevice> {
    let all = [WgslDevice::Gpu(0), WgslDevice::Software, WgslDevice::Cpu];
    all.into_iter().filter(|device| device.resolve().is_ok())
}

/// Normally distributed floats.
pub fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// The same, of which gradients are asked.
pub fn tracked<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Ad, D> {
    Tensor::from_inner(random(shape, device)).require_grad()
}

/// Integers in `0..below`.
pub fn indices<const D: usize>(
    below: usize,
    shape: [usize; D],
    device: &WgslDevice,
) -> Tensor<Wgsl, D, Int> {
    Tensor::random(shape, Distribution::Uniform(0.0, below as f64), device)
}

/// Measures on every device the op that `prepare` makes there, with so many elements or operations for a rate.
pub fn measure<R, Op: FnMut() -> R>(
    criterion: &mut Criterion,
    name: &str,
    rate: usize,
    prepare: impl Fn(&WgslDevice) -> Op,
) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(rate as u64));
    for device in devices() {
        time(&mut group, BenchmarkId::from_parameter(device), &device, &prepare);
    }
    group.finish();
}

/// Measures an op of random tensors of these shapes.
pub fn measure_op<const D: usize, const N: usize, R>(
    criterion: &mut Criterion,
    name: &str,
    rate: usize,
    shapes: [[usize; D]; N],
    op: impl Fn([Tensor<Wgsl, D>; N]) -> R,
) {
    let op = &op;
    measure(criterion, name, rate, |device| {
        let tensors = shapes.map(|shape| random(shape, device));
        move || op(tensors.clone())
    });
}

/// Measures the gradients of an op in all its tensors, together with the forward pass that they need.
pub fn measure_gradients<const D: usize, const N: usize, const E: usize>(
    criterion: &mut Criterion,
    name: &str,
    rate: usize,
    shapes: [[usize; D]; N],
    op: impl Fn([Tensor<Ad, D>; N]) -> Tensor<Ad, E>,
) {
    let op = &op;
    measure(criterion, name, rate, |device| {
        let tensors = shapes.map(|shape| tracked(shape, device));
        move || op(tensors.clone()).sum().backward()
    });
}

/// Measures every case that the tests walk. Their shapes are small and awkward: what shows is what a call costs.
pub fn walk(criterion: &mut Criterion, family: &str, cases: &'static [Case]) {
    let mut by_op: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        by_op.entry(case.op).or_default().push(case);
    }
    for (op, cases) in by_op {
        let mut group = criterion.benchmark_group(format!("{family}/{op}"));
        for (index, case) in cases.into_iter().enumerate() {
            for device in devices() {
                let id = BenchmarkId::new(format!("case {index}"), device);
                time(&mut group, id, &device, |&device| {
                    let mut kept = Kept::default();
                    // Ops beyond Burn's contract get new tensors at each call.
                    move || {
                        let values = call_again::<Wgsl>(case, &device, &mut kept);
                        let values = values.or_else(|| call_extension(case, &device));
                        values.unwrap_or_else(|| panic!("no table has {}", case.op))
                    }
                });
            }
        }
        group.finish();
    }
}

/// Times the op until its result is there.
fn time<R, Op: FnMut() -> R>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    device: &WgslDevice,
    prepare: impl Fn(&WgslDevice) -> Op,
) {
    // Made when it is first run: what a filter leaves out costs nothing.
    let mut op = None;
    group.bench_function(id, |bencher| {
        let op = op.get_or_insert_with(|| prepare(device));
        bencher.iter(|| {
            black_box(op());
            Wgsl::sync(device).expect("the device is alive");
        });
    });
}
