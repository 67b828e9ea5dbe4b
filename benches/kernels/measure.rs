//! Devices, random tensors and measurement functions of all benchmarks.
//!
//! Each measured call includes a device synchronisation.

use std::collections::BTreeMap;
use std::hint::black_box;

use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};
use burn_wgsl::backend::call::{CaseInputs, call_extension, call_with_inputs};
use burn_wgsl::kernels::ops::cases::Case;
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};

/// The backend wrapped for automatic differentiation.
pub type AutodiffWgsl = Autodiff<Wgsl>;

/// Returns those of the first GPU, the software adapter and the CPU that are available.
fn devices() -> impl Iterator<Item = WgslDevice> {
    let all = [WgslDevice::Gpu(0), WgslDevice::Software, WgslDevice::Cpu];
    all.into_iter().filter(|device| device.resolve().is_ok())
}

/// Returns floats from the standard normal distribution.
pub fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Returns normally distributed floats that require gradients.
pub fn tracked<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<AutodiffWgsl, D> {
    Tensor::from_inner(random(shape, device)).require_grad()
}

/// Returns uniformly distributed integers in `0..below`.
pub fn random_indices<const D: usize>(
    below: usize,
    shape: [usize; D],
    device: &WgslDevice,
) -> Tensor<Wgsl, D, Int> {
    Tensor::random(shape, Distribution::Uniform(0.0, below as f64), device)
}

/// Measures the op that `prepare` returns, on every device. `throughput` is the number of elements
/// or operations per call, from which criterion computes a rate.
pub fn measure<R, Op: FnMut() -> R>(
    criterion: &mut Criterion,
    name: &str,
    throughput: usize,
    prepare: impl Fn(&WgslDevice) -> Op,
) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(throughput as u64));
    for device in devices() {
        time(&mut group, BenchmarkId::from_parameter(device), &device, &prepare);
    }
    group.finish();
}

/// Measures an op on random tensors of the given shapes.
pub fn measure_op<const D: usize, const N: usize, R>(
    criterion: &mut Criterion,
    name: &str,
    throughput: usize,
    shapes: [[usize; D]; N],
    op: impl Fn([Tensor<Wgsl, D>; N]) -> R,
) {
    let op = &op;
    measure(criterion, name, throughput, |device| {
        let tensors = shapes.map(|shape| random(shape, device));
        move || op(tensors.clone())
    });
}

/// Measures the forward and backward pass of an op. All input tensors require gradients.
pub fn measure_gradients<const D: usize, const N: usize, const E: usize>(
    criterion: &mut Criterion,
    name: &str,
    throughput: usize,
    shapes: [[usize; D]; N],
    op: impl Fn([Tensor<AutodiffWgsl, D>; N]) -> Tensor<AutodiffWgsl, E>,
) {
    let op = &op;
    measure(criterion, name, throughput, |device| {
        let tensors = shapes.map(|shape| tracked(shape, device));
        move || op(tensors.clone()).sum().backward()
    });
}

/// Measures every test case of a family. The shapes are small and irregular, so the times show the
/// overhead of a call.
pub fn measure_cases(criterion: &mut Criterion, family: &str, cases: &'static [Case]) {
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
                    let mut inputs = CaseInputs::default();
                    // Ops beyond Burn's contract create new tensors in each call.
                    move || {
                        let values = call_with_inputs::<Wgsl>(case, &device, &mut inputs);
                        let values = values.or_else(|| call_extension(case, &device));
                        values.unwrap_or_else(|| {
                            panic!("unknown op {}: no op table lists it", case.op)
                        })
                    }
                });
            }
        }
        group.finish();
    }
}

/// Measures the op together with the synchronisation that waits for its result.
fn time<R, Op: FnMut() -> R>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    device: &WgslDevice,
    prepare: impl Fn(&WgslDevice) -> Op,
) {
    // Prepared at the first run, so that benchmarks excluded by a filter create no tensors.
    let mut op = None;
    group.bench_function(id, |bencher| {
        let op = op.get_or_insert_with(|| prepare(device));
        bencher.iter(|| {
            // Held until then: what is dropped is not computed.
            let result = black_box(op());
            Wgsl::sync(device).expect("synchronisation succeeds");
            drop(result);
        });
    });
}
