//! Speed of the main kernels on every device of this machine: `cargo bench`, or `cargo bench -- matmul`.
//!
//! Each measurement records one launch, hands it to the device and waits for it.

use std::hint::black_box;

use burn::tensor::activation::{gelu, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::module::conv2d;
use burn::tensor::ops::{ConvOptions, PaddedConvOptions};
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::{Wgsl, WgslDevice};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn devices() -> impl Iterator<Item = WgslDevice> {
    let all = [WgslDevice::Gpu(0), WgslDevice::Software, WgslDevice::Cpu];
    all.into_iter().filter(|device| device.place().is_ok())
}

fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Measures `op` on every device, with so many elements or operations for a rate.
fn measure<const D: usize, const E: usize>(
    criterion: &mut Criterion,
    name: &str,
    rate: u64,
    shapes: &[[usize; D]],
    op: impl Fn(&[Tensor<Wgsl, D>]) -> Tensor<Wgsl, E>,
) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(rate)).sample_size(10);
    for device in devices() {
        let tensors: Vec<_> = shapes.iter().map(|shape| random(*shape, &device)).collect();
        group.bench_function(BenchmarkId::from_parameter(device), |bencher| {
            bencher.iter(|| {
                black_box(op(&tensors));
                Wgsl::sync(&device).expect("the device is alive");
            });
        });
    }
    group.finish();
}

fn kernels(criterion: &mut Criterion) {
    for n in [256, 512, 1024] {
        let flops = 2 * (n as u64).pow(3);
        measure(criterion, &format!("matmul/{n}"), flops, &[[n, n], [n, n]], |t| t[0].clone().matmul(t[1].clone()));
    }
    let flops = 2 * 64 * 64 * 64 * 288;
    measure(criterion, "conv2d/64x32x8x8-64-3x3", flops, &[[64, 32, 8, 8], [64, 32, 3, 3]], |t| {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        conv2d(t[0].clone(), t[1].clone(), None, PaddedConvOptions::from(options))
    });
    let len = 1 << 22;
    measure(criterion, "add/2^22", len as u64, &[[len], [len]], |t| t[0].clone() + t[1].clone());
    measure(criterion, "gelu/2^22", len as u64, &[[len]], |t| gelu(t[0].clone()));
    measure(criterion, "sum_rows/2048x2048", 1 << 22, &[[2048, 2048]], |t| t[0].clone().sum_dim(1));
    measure(criterion, "sum_columns/2048x2048", 1 << 22, &[[2048, 2048]], |t| t[0].clone().sum_dim(0));
    measure(criterion, "softmax/4096x1024", 1 << 22, &[[4096, 1024]], |t| softmax(t[0].clone(), 1));
    measure(criterion, "transpose/2048x2048", 1 << 22, &[[2048, 2048]], |t| {
        t[0].clone().transpose().reshape([1 << 22])
    });
}

criterion_group!(benches, kernels);
criterion_main!(benches);
