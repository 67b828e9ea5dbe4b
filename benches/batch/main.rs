//! The largest batch of a training step that fits in a limit of memory, in f32, f16 and bf16:
//! `cargo bench --bench batch --features train`.
//!
//! `BATCH_DEVICE` selects the device [default: auto], `BATCH_LIMIT_MIB` the limit [default: 256]. A 16-bit
//! activation takes half of what it takes in f32; parameters, their gradients and the optimizer's state stay f32.

mod models;

use std::collections::BTreeMap;
use std::time::Instant;

use burn::module::AutodiffModule;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_wgsl::scaler::GradScalerConfig;
use burn_wgsl::train::BatchSearch;
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast};

use models::{Cnn, Transformer};

type B = Autodiff<Wgsl>;

/// Steps that are measured, after as many that are not.
const STEPS: usize = 2;

/// A model that trains on random batches.
trait Example: AutodiffModule<B> {
    const NAME: &'static str;

    fn new(device: &WgslDevice) -> Self;

    /// Returns the loss of a random batch.
    fn loss(&self, batch: usize, device: &WgslDevice) -> Tensor<B, 1>;
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
    let search = BatchSearch { limit: Some(limit), steps: 1, ..BatchSearch::default() };
    // Each run trains a new model, so that the parameters and the optimizer's state count.
    let mut speeds = BTreeMap::new();
    let run = |batch| {
        speeds.insert(batch, train::<M>(batch, precision, device));
    };
    let Ok(found) = search.find(device, run) else {
        println!("| {} | {precision} | none | | |", M::NAME);
        return;
    };
    let largest = found.largest;
    let peak =
        found.trials.iter().find(|trial| trial.batch == largest).map_or(0, |trial| trial.peak);
    let peak = peak as f64 / f64::from(1 << 20);
    println!("| {} | {precision} | {largest} | {peak:.1} MiB | {:.0} |", M::NAME, speeds[&largest]);
}

/// Trains a new model for a few steps, and returns the samples per second.
fn train<M: Example>(batch: usize, precision: Precision, device: &WgslDevice) -> f64 {
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
) -> f64 {
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
    (batch * STEPS) as f64 / start.elapsed().as_secs_f64()
}
