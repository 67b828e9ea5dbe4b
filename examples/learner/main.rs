//! Trains the network of the digits example with burn-train: metrics, checkpoints and resuming, on
//! a GPU or, if there is none, on the CPU.
//!
//! `cargo run --release -p learner -- --help` lists the options.

mod checkpoints;
mod classifier;
mod renderer;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::optim::{AdamConfig, Optimizer};
use burn::record::DefaultRecorder;
use burn::tensor::backend::Backend;
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{Learner, SupervisedTraining};
use burn_wgsl::device::set_quiet;
use burn_wgsl::scaler::{GradScaler, GradScalerConfig};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice};
use clap::Parser;
use digits::data::Dataset;
use digits::model::Model;
use digits::weights;

use classifier::{Batch, Classifier, Digit, DigitBatcher, Mixed, digits_of};
use renderer::EpochLines;

type B = Autodiff<Wgsl>;

/// Train a small CNN on handwritten digits with Burn's learner, on any GPU or on the CPU.
#[derive(Parser)]
#[command(name = "learner")]
struct Args {
    /// Device to train on: auto, cpu, software, gpu:0, discrete:0, ...
    #[arg(long, value_name = "SELECTOR", default_value = "auto")]
    device: WgslDevice,

    /// Passes over the training images, including those of the run that --resume continues
    #[arg(long, value_name = "N", default_value_t = 10)]
    epochs: usize,

    /// Images per training step
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    batch: u32,

    /// Random seed of the initial weights, the dropout and the order of the images
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Learning rate of the Adam optimiser
    #[arg(long, value_name = "X", default_value_t = 1e-3)]
    learning_rate: f64,

    /// Type in which products and convolutions are computed: f32, f16 (with a loss scale) or bf16
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    precision: Precision,

    /// Folder of the checkpoints, the metrics and the trained model
    #[arg(long, value_name = "FOLDER", default_value = "learner-run")]
    folder: PathBuf,

    /// Continue after the last complete checkpoint in the folder
    #[arg(long)]
    resume: bool,

    /// Print the metrics as lines, also if the program has Burn's dashboard (feature `tui`)
    #[arg(long)]
    plain: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse(), Dataset::built_in()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Checks the folder, trains on a dataset and saves the model.
fn run(args: &Args, dataset: Result<Dataset, digits::data::DataError>) -> Result<()> {
    let (dataset, device) = (dataset?, args.device);
    // Burn loads checkpoints on the default device first. The message that it is not a GPU would be
    // about the wrong device.
    set_quiet(device != WgslDevice::Auto);
    println!("training on {}", device.describe()?);
    let start = match checkpoints::last(&args.folder, &device) {
        Some((epoch, _)) if !args.resume => bail!(
            "{} has a checkpoint of epoch {epoch}; add --resume, or select another --folder",
            args.folder.display()
        ),
        Some((epoch, _)) if epoch >= args.epochs => {
            println!("the run has {epoch} epochs; a larger --epochs continues it");
            return Ok(());
        }
        Some((epoch, is_scaled)) if !checkpoints::fits(args.precision, is_scaled) => bail!(
            "the run has epoch {epoch} {}; continue it so, or select another --folder",
            if is_scaled {
                "in f16, with a loss scale"
            } else {
                "in f32 or bf16, without a loss scale"
            }
        ),
        start => start.map(|(epoch, _)| epoch),
    };

    // The loss scale is for f16 alone: bf16 has the range of f32.
    let adam = AdamConfig::new().with_epsilon(1e-8).init();
    if args.precision == Precision::F16 {
        let scaler = GradScalerConfig::default().init(&device);
        let optimizer = scaler.wrap(adam);
        train(args, &dataset, start, optimizer, Some(scaler.clone()))?;
        println!("skipped steps: {}", scaler.state().skipped_steps);
    } else {
        train(args, &dataset, start, adam, None)?;
    }
    for (op, count) in burn_wgsl::fallbacks() {
        println!("{op} ran on the CPU {count} times, because it has no kernel");
    }
    Ok(())
}

/// Trains after the epoch `start`, or from the beginning, and saves the model.
fn train<O: Optimizer<Classifier<B>, B> + 'static>(
    args: &Args,
    dataset: &Dataset,
    start: Option<usize>,
    optimizer: O,
    scaler: Option<GradScaler>,
) -> Result<()> {
    let device = args.device;
    B::seed(&device, args.seed);
    let train = loader::<B>(digits_of(&dataset.train), args, &device, Some(args.seed));
    let test = loader::<Wgsl>(digits_of(&dataset.test), args, &device, None);
    let mut training = SupervisedTraining::new(&args.folder, train, test)
        // Burn computes metrics on burn-flex, from batches that were read back.
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .with_file_checkpointer(DefaultRecorder::new())
        // Burn's logger would write to a file and replace the panic hook.
        .with_application_logger(None)
        .num_epochs(args.epochs);
    if args.plain || !cfg!(feature = "tui") {
        training = training.renderer(EpochLines::default());
    }
    if let Some(epoch) = start {
        println!("continuing after epoch {epoch}");
        training = training.checkpoint(epoch);
    }
    let mixed = Mixed { precision: args.precision, scaler };
    let classifier = Classifier::new(Model::new(&device), mixed);
    let trained = training.launch(Learner::new(classifier, optimizer, args.learning_rate)).model;

    // The format of the digits example: `digits --epochs 0 --load FILE` tests the model.
    let file = args.folder.join("model.mpk");
    std::fs::write(&file, weights::to_bytes(trained.into_model())?)
        .with_context(|| format!("cannot write the model file {}", file.display()))?;
    println!("model saved to {}", file.display());
    Ok(())
}

/// Returns a data loader that creates its batches on the device. Without `set_device`, batches
/// would be on the default device. `shuffle` is the seed of their order.
fn loader<T: Backend<Device = WgslDevice>>(
    digits: Vec<Digit>,
    args: &Args,
    device: &WgslDevice,
    shuffle: Option<u64>,
) -> Arc<dyn DataLoader<T, Batch<T>>> {
    let mut builder =
        DataLoaderBuilder::new(DigitBatcher).batch_size(args.batch as usize).set_device(*device);
    if let Some(seed) = shuffle {
        builder = builder.shuffle(seed);
    }
    builder.build(InMemDataset::new(digits))
}
