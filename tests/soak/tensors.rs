//! Eight threads with tensors of random sizes and random lifetimes, and a training step in each round.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::memory::{self, MemoryUsage};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::common::{self, serial_guard};
use crate::{GROWTH, PERIODS, minutes, period};

type B = Autodiff<Wgsl>;

const THREADS: usize = 8;
/// Kernels that are generated for fused ops.
const GENERATED_KERNELS: usize = 100;
/// Tensors that a thread keeps.
const KEPT: usize = 24;

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    out: Linear<B>,
}

/// A tensor, and the value of all its elements.
type Known = (Tensor<Wgsl, 1>, f32);

/// A linear congruential generator (Knuth, MMIX).
struct Rng(u64);

impl Rng {
    /// Returns a random number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit
    }
}

/// Computes with tensors of random sizes, keeps some of them, and trains a small network.
struct Worker {
    device: WgslDevice,
    rng: Rng,
    kept: Vec<Known>,
    steps: u64,
}

impl Worker {
    /// Works until the time is up, then drops all tensors.
    fn run_until(&mut self, end: Instant) {
        let mut model = Mlp::<B> {
            hidden: LinearConfig::new(12, 24).init(&self.device),
            out: LinearConfig::new(24, 4).init(&self.device),
        };
        let mut optimizer = AdamConfig::new().init();
        while Instant::now() < end {
            for _ in 0..10 {
                self.compute();
            }
            let batch = 1 + self.rng.below(40);
            let x = Tensor::<B, 2>::random([batch, 12], Distribution::Default, &self.device);
            let hidden = burn::tensor::activation::relu(model.hidden.forward(x));
            let loss = model.out.forward(hidden).powi_scalar(2).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(0.01, model, gradients);
            if self.steps.is_multiple_of(16) {
                let loss: f32 = loss.into_scalar();
                assert!(loss.is_finite(), "the loss is {loss}");
            }
            self.steps += 1;
        }
        self.kept.drain(..).for_each(check);
    }

    /// Makes a tensor from those that are kept, and keeps it in the place of another.
    fn compute(&mut self) {
        if self.kept.len() < KEPT {
            let magnitude = 4 + self.rng.below(14);
            let len = 1 + self.rng.below(1 << magnitude);
            let value = self.rng.below(8) as f32;
            self.kept.push((Tensor::full([len], value, &self.device), value));
            return;
        }
        let (index, other) = (self.rng.below(KEPT), self.rng.below(KEPT));
        let (x, value) = self.kept[index].clone();
        let len = x.dims()[0];
        // Small integers: their sums and products are exact.
        let known = match self.rng.below(8) {
            0 => ((x * 2.0 + 1.0).remainder_scalar(8.0), (value * 2.0 + 1.0) % 8.0),
            1 => (x.clone().max_pair(x * 0.5).remainder_scalar(8.0), value.max(value * 0.5) % 8.0),
            2 => (x.slice(len / 2..len), value),
            3 => (Tensor::cat(vec![x.clone().slice(0..len.min(100)), x.flip([0])], 0), value),
            4 => {
                // A column times a row of ones, summed along the row.
                let column = x.slice(0..len.min(300)).unsqueeze_dim::<2>(1);
                let row = Tensor::<Wgsl, 2>::ones([1, 48], &self.device);
                let sum = column.matmul(row).sum_dim(1).squeeze_dim::<1>(1);
                ((sum / 48.0).round(), value)
            }
            5 => {
                let len = len.min(self.kept[other].0.dims()[0]);
                let (y, added) = self.kept[other].clone();
                let sum = x.slice(0..len) + y.slice(0..len);
                (sum.remainder_scalar(8.0), (value + added) % 8.0)
            }
            6 => {
                check((x, value));
                return;
            }
            _ => (Tensor::full([len], value, &self.device), value),
        };
        // The result takes the place of a tensor that is dropped, read or not.
        let (dropped, value) = std::mem::replace(&mut self.kept[other], known);
        if self.rng.below(32) == 0 {
            check((dropped, value));
        }
        if self.rng.below(64) == 0 {
            let count = self.rng.below(KEPT);
            self.kept.truncate(count);
        }
    }
}

fn check((tensor, value): Known) {
    let values = tensor.into_data().to_vec::<f32>().expect("the elements are f32");
    let wrong = values.iter().position(|&x| x != value);
    assert!(wrong.is_none(), "{value}, not {:?} at {wrong:?}", wrong.map(|index| values[index]));
}

#[test]
fn eight_threads_run_for_long_with_flat_memory() {
    let _guard = serial_guard();
    let (minutes, period) = (minutes(), period());
    for device in common::gpus() {
        let usage = || -> MemoryUsage {
            Wgsl::sync(&device).expect("the device works");
            memory::usage(&device).expect("the device exists")
        };
        println!("{device}: {minutes} minutes, {THREADS} threads");
        // As in a program that has run for long: all kernels that may be generated are compiled soon.
        common::runtime_of(&device).set_max_generated_kernels(GENERATED_KERNELS);
        let before = usage();
        let barrier = Barrier::new(THREADS + 1);
        let mut periods: Vec<(f64, MemoryUsage, usize)> = Vec::new();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|index| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let rng = Rng(index as u64);
                        let mut worker = Worker { device, rng, kept: Vec::new(), steps: 0 };
                        let mut steps = Vec::new();
                        // A thread that fails waits for the others, which would wait for it.
                        let mut failure = None;
                        for _ in 0..PERIODS {
                            barrier.wait();
                            worker.steps = 0;
                            if failure.is_none() {
                                let work = || worker.run_until(Instant::now() + period);
                                failure = catch_unwind(AssertUnwindSafe(work)).err();
                            }
                            steps.push(worker.steps);
                            barrier.wait();
                            barrier.wait();
                        }
                        failure.map_or(steps, |failure| resume_unwind(failure))
                    })
                })
                .collect();
            for _ in 0..PERIODS {
                barrier.wait();
                let start = Instant::now();
                barrier.wait();
                let seconds = start.elapsed().as_secs_f64();
                // A device that fails shows in the threads' results.
                let _ = Wgsl::sync(&device);
                let now = memory::usage(&device).unwrap_or_default();
                let resident = common::resident_bytes();
                periods.push((seconds, now, resident));
                barrier.wait();
            }
            let steps: Vec<Vec<u64>> = workers
                .into_iter()
                .map(|worker| worker.join().expect("every result is right"))
                .collect();
            println!("period   steps/s        in use      reserved       process");
            for (index, (seconds, now, resident)) in periods.iter().enumerate() {
                let count: u64 = steps.iter().map(|steps| steps[index]).sum();
                let MemoryUsage { in_use, reserved, .. } = now;
                let speed = count as f64 / seconds;
                println!("{index:>6} {speed:>9.0} {in_use:>13} {reserved:>13} {resident:>13}");
            }
        });
        // The first periods compile kernels and fill the pool.
        let (_, warm, resident) = periods[PERIODS / 2 - 1];
        for (index, (_, now, _)) in periods.iter().enumerate() {
            assert_eq!(now.in_use, before.in_use, "bytes in use after period {index} on {device}");
        }
        let (_, last, last_resident) = periods[PERIODS - 1];
        assert!(
            last.reserved <= warm.reserved + GROWTH as u64,
            "reserved memory grew from {} to {} on {device}",
            warm.reserved,
            last.reserved
        );
        let grown = last_resident.saturating_sub(resident);
        assert!(grown < GROWTH, "the process grew by {grown} bytes on {device}");
    }
}
