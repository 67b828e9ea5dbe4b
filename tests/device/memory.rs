//! Memory: what a device reserves and what the process uses stay bounded. These tests
//! run one at a time, because memory is measured per process.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Distribution, Tensor};
use burn_wgsl::memory::MemoryUsage;
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{gpus, resident_bytes, serial_guard};

type B = Autodiff<Wgsl>;

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    out: Linear<B>,
}

/// Returns the memory of a GPU.
fn memory(device: &WgslDevice) -> MemoryUsage {
    burn_wgsl::memory::usage(device).expect("the device exists")
}

/// A long training keeps no memory: neither the device nor the process grows.
#[test]
fn memory_is_flat_over_10000_training_steps() {
    let _guard = serial_guard();
    for device in gpus() {
        let mut model = Mlp::<B> {
            hidden: LinearConfig::new(8, 16).init(&device),
            out: LinearConfig::new(16, 4).init(&device),
        };
        let mut optimizer = AdamConfig::new().init();
        let mut train = |steps: usize| {
            for step in 0..steps {
                // The last batch of an epoch is smaller than the others.
                let batch = if step % 10 == 9 { 5 } else { 12 };
                let x = Tensor::<B, 2>::random([batch, 8], Distribution::Default, &device);
                let hidden = burn::tensor::activation::relu(model.hidden.forward(x));
                let loss = model.out.forward(hidden).powi_scalar(2).mean();
                let grads = GradientsParams::from_grads(loss.backward(), &model);
                model = optimizer.step(0.01, model.clone(), grads);
                if step % 10 == 9 {
                    let loss: f32 = loss.into_scalar();
                    assert!(loss.is_finite(), "the loss is {loss} at step {step}");
                }
            }
            Wgsl::sync(&device).expect("the device is alive");
        };
        // The caches of pipelines and bind groups fill up.
        train(1000);
        let (used, resident) = (memory(&device), resident_bytes());
        train(10_000);
        let grown = resident_bytes().saturating_sub(resident);
        let now = memory(&device);
        assert_eq!(now.in_use, used.in_use, "bytes in use on {device}");
        assert_eq!(now.reserved, used.reserved, "bytes reserved on {device}");
        assert!(grown < 16 << 20, "the process grew by {grown} bytes on {device}");
    }
}

#[test]
fn reserved_memory_does_not_grow_over_ops_of_many_sizes() {
    let _guard = serial_guard();
    for device in gpus() {
        let step = || {
            let a = Tensor::<Wgsl, 2>::random([600, 700], Distribution::Default, &device);
            let b = Tensor::<Wgsl, 2>::ones([700, 50], &device);
            let c = a.matmul(b).exp().sum_dim(0).reshape([50]);
            let small: Vec<Tensor<Wgsl, 1>> =
                (1..20).map(|n| c.clone().slice(0..n) * 2.0).collect();
            Tensor::cat(small, 0).sum().into_scalar()
        };
        for _ in 0..5 {
            step();
        }
        let before = memory(&device).reserved;
        for _ in 0..60 {
            step();
        }
        let growth = memory(&device).reserved.saturating_sub(before);
        assert!(growth < 20 << 20, "{growth} more bytes reserved after 60 steps on {device}");
        Wgsl::sync(&device).expect("the device is alive");
    }
}

/// Retired buffers are destroyed even if nothing is read back. A software adapter allocates in this
/// process, so the resident size shows it.
#[test]
fn retired_buffers_are_destroyed_without_a_readback() {
    let _guard = serial_guard();
    for device in gpus().into_iter().filter(|device| *device == WgslDevice::Software) {
        let before = resident_bytes();
        let mut peak_growth = 0;
        // Each size has its own size class, 16 to 120 MiB. A round of 1.3 GiB is more than the pool
        // keeps, so no buffer is reused.
        let mebibytes = (0..24).map(|step| (8 + step % 8) << (1 + step / 8));
        for size in mebibytes.cycle().take(72) {
            drop(Tensor::<Wgsl, 1>::ones([size << 18], &device) * 2.0);
            peak_growth = peak_growth.max(resident_bytes().saturating_sub(before));
        }
        assert!(peak_growth < 1 << 30, "the resident size grew by {peak_growth} bytes");
    }
}

/// With this strategy, the backward pass computes results of memory-bound ops again, in 16 bits too.
#[test]
fn checkpointing_keeps_half_as_much_in_16_bits() {
    type B = burn_wgsl::Autodiff<Wgsl, BalancedCheckpointing>;
    /// Returns the bytes in use between a forward pass and its backward pass.
    fn kept(device: &WgslDevice, dtype: DType) -> u64 {
        let tensor = |value: f64| Tensor::<B, 2>::full([256, 256], value, (device, dtype));
        let [mut x, w] = [tensor(0.5), tensor(1e-3)].map(Tensor::require_grad);
        Wgsl::sync(device).expect("the device works");
        let before = memory(device).in_use;
        for _ in 0..4 {
            let operands = [x.clone() * 0.5, x * 0.25];
            let [left, right] = operands.map(|operand| operand.matmul(w.clone()));
            x = left + right;
        }
        let loss = x.sum();
        let _ = loss.clone().into_data();
        let used = memory(device).in_use - before;
        drop(loss.backward());
        used
    }
    let _guard = serial_guard();
    for device in gpus() {
        let [half, full] = [DType::F16, DType::F32].map(|dtype| kept(&device, dtype));
        assert!(2 * half <= full + 4096, "{half} bytes in f16, {full} in f32, on {device}");
    }
}
