//! The largest batch of a training step that fits in a limit of memory, in f32, f16 and bf16:
//! `cargo bench --bench batch --features train`.
//!
//! `BATCH_DEVICE` selects the device [default: auto], `BATCH_LIMIT_MIB` the limit [default: 256]. A 16-bit
//! activation takes half of what it takes in f32; parameters, their gradients and the optimizer's state stay f32.

mod models;

use std::panic::catch_unwind;
use std::time::Instant;

use burn::module::AutodiffModule;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_wgsl::scaler::GradScalerConfig;
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast, memory};

use models::{Cnn, Transformer};

type B = Autodiff<Wgsl>;

/// Steps that are measured, after as many that are not.
const STEPS: usize = 2;
/// The batches that are tried are at most an eighth apart.
const RESOLUTION: usize = 8;

/// A model that trains on random batches.
trait Example: AutodiffModule<B> {
    const NAME: &'static str;

    fn new(device: &WgslDevice) -> Self;

    /// Returns the loss of a random batch.
    fn loss(&self, batch: usize, device: &WgslDevice) -> Tensor<B, 1>;
}

/// The memory and the time of a step.
#[derive(Clone, Copy)]
struct Step {
    batch: usize,
    /// Bytes, with parameters and the optimizer's state.
    peak: u64,
    seconds: f64,
}

fn main() {
    let variable = |name| std::env::var(name).ok();
    let device = variable("BATCH_DEVICE").unwrap_or_else(|| "auto".to_owned());
    let device: WgslDevice = device.parse().unwrap_or_else(|error| panic!("BATCH_DEVICE: {error}"));
    let limit = variable("BATCH_LIMIT_MIB").unwrap_or_else(|| "256".to_owned());
    let limit: u64 = limit.parse().unwrap_or_else(|error| panic!("BATCH_LIMIT_MIB: {error}"));
    let adapter = device.describe().unwrap_or_else(|error| panic!("{error}"));
    println!("{adapter}, limit {limit} MiB\n");
    println!("| model | type | largest batch | peak | samples/s |\n|---|---|---|---|---|");
    let precisions = [Precision::F32, Precision::F16, Precision::Bf16];
    for precision in precisions {
        print_row::<Transformer<B>>(precision, limit << 20, &device);
    }
    for precision in precisions {
        print_row::<Cnn<B>>(precision, limit << 20, &device);
    }
}

fn print_row<M: Example>(precision: Precision, limit: u64, device: &WgslDevice) {
    let Some(step) = largest(limit, |batch| measure::<M>(batch, precision, device)) else {
        println!("| {} | {precision} | none | | |", M::NAME);
        return;
    };
    let peak = step.peak as f64 / f64::from(1 << 20);
    let speed = step.batch as f64 / step.seconds;
    println!("| {} | {precision} | {} | {peak:.1} MiB | {speed:.0} |", M::NAME, step.batch);
}

/// Returns the step of the largest batch whose peak is within the limit, up to the resolution.
fn largest(limit: u64, measure: impl Fn(usize) -> Option<Step>) -> Option<Step> {
    let fits = |batch| measure(batch).filter(|step| step.peak <= limit);
    let mut best = fits(1)?;
    while let Some(step) = fits(2 * best.batch) {
        best = step;
    }
    let mut too_large = 2 * best.batch;
    while too_large - best.batch > (best.batch / RESOLUTION).max(1) {
        let middle = (best.batch + too_large) / 2;
        match fits(middle) {
            Some(step) => best = step,
            None => too_large = middle,
        }
    }
    Some(best)
}

/// Measures training steps of a new model. Returns `None` if they fail, such as for a tensor that is larger than a
/// binding; the panic says why.
fn measure<M: Example>(batch: usize, precision: Precision, device: &WgslDevice) -> Option<Step> {
    let steps = || catch_unwind(|| train::<M>(batch, precision, device)).ok();
    let (step, measured) = memory::measure(device, steps).unwrap_or_else(|error| panic!("{error}"));
    step.map(|step| Step { peak: measured.peak, ..step })
}

fn train<M: Example>(batch: usize, precision: Precision, device: &WgslDevice) -> Step {
    let adam = AdamConfig::new().init::<B, M>();
    if precision != Precision::F16 {
        return train_with(batch, precision, device, adam, |loss| loss);
    }
    let scaler = GradScalerConfig::default().init(device);
    train_with(batch, precision, device, scaler.wrap(adam), |loss| scaler.scale(loss))
}

fn train_with<M: Example, O: Optimizer<M, B>>(
    batch: usize,
    precision: Precision,
    device: &WgslDevice,
    mut optimizer: O,
    scaled: impl Fn(Tensor<B, 1>) -> Tensor<B, 1>,
) -> Step {
    let _scope = autocast(device, precision);
    let mut model = M::new(device);
    let sync = || Wgsl::sync(device).unwrap_or_else(|error| panic!("{error}"));
    let mut start = Instant::now();
    for step in 0..2 * STEPS {
        if step == STEPS {
            sync();
            start = Instant::now();
        }
        let loss = scaled(model.loss(batch, device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
    }
    sync();
    Step { batch, peak: 0, seconds: start.elapsed().as_secs_f64() / STEPS as f64 }
}
