//! Trains the digits network, and goes on from the last checkpoint when the device is lost, as
//! after a driver reset.
//!
//! `cargo run --release -p recovery -- --lose-at 9` loses the device on purpose.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, attempt};
use clap::Parser;
use digits::data::{Dataset, Samples};
use digits::learner::Learner;
use digits::model::Model;
use digits::rng::Rng;
use digits::tensors::{SampleTensors, int_tensor};

type B = Autodiff<Wgsl>;

const BATCH: usize = 64;
const LEARNING_RATE: f64 = 1e-3;

/// How long the program waits after each failure of the device in a row, before it gives up: a driver
/// needs some time after a reset.
const WAITS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_secs(5), Duration::from_secs(30)];

/// Train a small CNN on handwritten digits. If the device is lost, go on from the last checkpoint.
#[derive(Parser, Clone)]
#[command(name = "recovery")]
struct Args {
    /// Device to train on: auto, cpu, software, gpu:0, discrete:0, ...
    #[arg(long, value_name = "SELECTOR", default_value = "auto")]
    device: WgslDevice,

    /// Passes over the training images
    #[arg(long, value_name = "N", default_value_t = 5)]
    epochs: u64,

    /// Lose the device on purpose before this training step, counted from 0
    #[arg(long, value_name = "STEP")]
    lose_at: Option<usize>,
}

/// The state of a run at the end of an epoch, in the memory of the host. A program that must also
/// survive its own end writes the bytes to a file.
struct Checkpoint {
    /// Number of completed epochs.
    epoch: u64,
    /// The weights and the state of the optimiser.
    learner: Vec<u8>,
}

/// An error of the training, which would be the same in another attempt.
#[derive(Debug, thiserror::Error)]
#[error("the loss became {loss} in epoch {epoch}")]
struct NotFinite {
    loss: f64,
    epoch: u64,
}

fn main() -> ExitCode {
    let run = || {
        let dataset = Dataset::built_in()?;
        let (checkpoint, failures) = run(&Args::parse(), &dataset.train)?;
        println!("{} epochs, {failures} failures", checkpoint.epoch);
        Ok(())
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error: anyhow::Error = error;
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Trains until all epochs are done. Returns the last checkpoint, and how often the device failed.
fn run(args: &Args, samples: &Samples) -> Result<(Checkpoint, u32)> {
    println!("training on {}", args.device.describe()?);
    ensure!(args.epochs > 0, "there is nothing to train: --epochs is 0");
    let mut checkpoint = None;
    let mut lose_at = args.lose_at;
    let mut failures = 0;
    // The last completed epoch at the last failure, and the failures since.
    let mut failed_at: Option<(u64, usize)> = None;
    loop {
        // A panic leaves a checkpoint as it was before the epoch.
        let trained = attempt(|| train(args, samples, &mut checkpoint, &mut lose_at));
        match trained.unwrap_or_else(|panic| Err(panic.into())) {
            Ok(checkpoint) => return Ok((checkpoint, failures)),
            Err(error) => {
                failures += 1;
                let completed = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.epoch);
                // An epoch that was completed since the last failure shows that the device works.
                failed_at = failed_at.filter(|(epoch, _)| *epoch == completed);
                let in_a_row = failed_at.map_or(0, |(_, count)| count);
                let Some(wait) = WAITS.get(in_a_row).filter(|_| !error.is::<NotFinite>()) else {
                    return Err(error.context(format!("gave up after epoch {completed}")));
                };
                failed_at = Some((completed, in_a_row + 1));
                eprintln!("failed: {error:#}\ngoing on after epoch {completed}");
                sleep(*wait);
                // The next tensor opens the device again. Closing it first also frees what a device
                // that still works holds.
                burn_wgsl::close(&args.device)?;
            }
        }
    }
}

/// Trains from a checkpoint, or from the beginning, to the end of the last epoch. Makes a checkpoint
/// after each epoch.
fn train(
    args: &Args,
    samples: &Samples,
    checkpoint: &mut Option<Checkpoint>,
    lose_at: &mut Option<usize>,
) -> Result<Checkpoint> {
    let device = args.device;
    let images = SampleTensors::<B>::new(samples, &device);
    B::seed(&device, 0);
    let mut learner = Learner::new(Model::<B>::new(&device), &device);
    let mut epoch = 0;
    if let Some(checkpoint) = checkpoint {
        learner = learner.with_state(&checkpoint.learner, &device)?;
        epoch = checkpoint.epoch;
    }
    while epoch < args.epochs {
        epoch += 1;
        // Seeded for each epoch: an epoch that is repeated is the same.
        B::seed(&device, epoch);
        let order = int_tensor(Rng(epoch).permutation(images.count), &device);
        let mut loss_sum = Tensor::<Wgsl, 1>::zeros([1], &device);
        for start in (0..images.count).step_by(BATCH) {
            let step = (epoch - 1) as usize * images.count.div_ceil(BATCH) + start / BATCH;
            if lose_at.take_if(|at| *at == step).is_some() {
                burn_wgsl::close(&device)?;
            }
            let end = images.count.min(start + BATCH);
            let (images, labels) = images.select(order.clone().slice_dim(0, start..end));
            let loss;
            (learner, loss) = learner.step(images, labels, LEARNING_RATE);
            loss_sum = loss_sum + loss * (end - start) as f64;
        }
        let loss = loss_sum.try_into_scalar()?.elem::<f64>() / images.count as f64;
        if !loss.is_finite() {
            bail!(NotFinite { loss, epoch });
        }
        println!("epoch {epoch}   loss {loss:.4}");
        *checkpoint = Some(Checkpoint { epoch, learner: learner.state()? });
    }
    checkpoint.take().ok_or_else(|| anyhow!("no epoch was trained"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trains for three epochs of 12 steps, on a software adapter or the CPU. Returns how often the
    /// device failed, and the logits of the trained network.
    fn train_for(lose_at: Option<usize>) -> (u32, Vec<f32>) {
        let device = match WgslDevice::Software.resolve() {
            Ok(_) => WgslDevice::Software,
            Err(_) => WgslDevice::Cpu,
        };
        let mut samples = Dataset::built_in().expect("the images are part of the program").train;
        samples.labels.truncate(12 * BATCH);
        samples.pixels.truncate(12 * BATCH * 64);
        let (checkpoint, failures) =
            run(&Args { device, epochs: 3, lose_at }, &samples).expect("training succeeds");
        assert_eq!(checkpoint.epoch, 3);
        let learner = Learner::new(Model::<B>::new(&device), &device);
        let learner = learner.with_state(&checkpoint.learner, &device).expect("it can be loaded");
        let (images, _) = SampleTensors::<Wgsl>::new(&samples, &device)
            .select(int_tensor((0..100).collect(), &device));
        let logits = learner.valid().forward(images).into_data();
        (failures, logits.to_vec().expect("the elements are f32"))
    }

    #[test]
    fn a_run_that_loses_the_device_ends_with_the_same_bits() {
        let (failures, undisturbed) = train_for(None);
        assert_eq!(failures, 0);
        // Before the first checkpoint, and after it.
        for step in [9, 21] {
            let (failures, recovered) = train_for(Some(step));
            // The CPU cannot be lost.
            assert_eq!(failures, u32::from(WgslDevice::Software.resolve().is_ok()));
            assert!(recovered == undisturbed, "the device was lost in step {step}");
        }
    }
}
