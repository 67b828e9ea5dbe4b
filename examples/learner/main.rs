//! Trains the network of the digits example with burn-train: metrics, checkpoints and resuming, on
//! a GPU or, if there is none, on the CPU.
//!
//! `cargo run --release -p learner -- --help` lists the options.

mod classifier;
mod renderer;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::optim::{AdamConfig, Optimizer};
use burn::tensor::backend::Backend;
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{Learner, SupervisedTraining, TrainingStrategy};
use burn_wgsl::parallel::{ParallelStrategy, Workers};
use burn_wgsl::scaler::{GradScaler, GradScalerConfig};
use burn_wgsl::train::{Loader, LoaderConfig, Parts, Run, RunConfig, RunStrategy, Shuffled, Stop};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice};
use clap::Parser;
use digits::data::Dataset;
use digits::model::Model;
use digits::weights;

use classifier::{Batch, Classifier, DigitBatcher, Mixed, digits_of};
use renderer::EpochLines;

type B = Autodiff<Wgsl>;

/// Train a small CNN on handwritten digits with Burn's learner, on any GPU or on the CPU.
#[derive(Parser)]
#[command(name = "learner")]
struct Args {
    /// Device to train on: auto, cpu, software, gpu:0, discrete:0, ...
    #[arg(long, value_name = "SELECTOR", default_value = "auto")]
    device: WgslDevice,

    /// Devices that train together, each with a part of the images: gpu:0,gpu:1. Saves no checkpoints
    #[arg(
        long,
        value_name = "SELECTORS",
        conflicts_with_all = ["device", "checkpoint_every", "resume"]
    )]
    devices: Option<Workers>,

    /// Allow several workers on one device of --devices
    #[arg(long, requires = "devices")]
    oversubscribe: bool,

    /// Passes over the training images, including those of the run that --resume continues
    #[arg(long, value_name = "N", default_value_t = 10)]
    epochs: usize,

    /// Images per training step, of each device
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

    /// Save a checkpoint after every N steps, not only after each epoch and at Ctrl-C or SIGTERM
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    checkpoint_every: Option<u64>,

    /// Continue after the newest checkpoint in the folder, also within an epoch
    #[arg(long)]
    resume: bool,

    /// Print the metrics as lines, also if the program has Burn's dashboard (feature `tui`)
    #[arg(long)]
    plain: bool,
}

impl Args {
    /// Returns the device, or the first of several.
    fn device(&self) -> WgslDevice {
        let first = self.devices.as_ref().and_then(|devices| devices.devices().first());
        first.copied().unwrap_or(self.device)
    }
}

fn main() -> ExitCode {
    let result = Stop::on_signals().map_err(anyhow::Error::from).and_then(|stop| {
        run(&Args::parse(), Dataset::built_in(), &stop)?;
        Ok(stop.exit_code())
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Trains on a dataset and saves the model.
fn run(
    args: &Args,
    dataset: Result<Dataset, digits::data::DataError>,
    stop: &Stop,
) -> Result<Model<Wgsl>> {
    let (dataset, device) = (dataset?, args.device());
    let devices = args.devices.as_ref().map_or(std::slice::from_ref(&device), Workers::devices);
    let names: Result<Vec<_>, _> = devices.iter().map(WgslDevice::describe).collect();
    println!("training on {}", names?.join(" + "));
    // The loss scale is for f16 alone: bf16 has the range of f32.
    let adam = AdamConfig::new().with_epsilon(1e-8).init();
    let model = if args.precision == Precision::F16 {
        ensure!(args.devices.is_none(), "--precision f16 scales the loss on one device; use bf16");
        let scaler = GradScalerConfig::default().init(&device);
        let optimizer = scaler.wrap(adam);
        let model = train(args, &dataset, stop, optimizer, Some(scaler.clone()))?;
        println!("skipped steps: {}", scaler.state().skipped_steps);
        model
    } else {
        train(args, &dataset, stop, adam, None)?
    };
    for (op, count) in burn_wgsl::fallbacks() {
        println!("{op} ran on the CPU {count} times, because it has no kernel");
    }
    Ok(model)
}

/// Trains on one device, from the beginning or from where the run in the folder ended, or on several, and saves the
/// model.
fn train<O: Optimizer<Classifier<B>, B> + 'static>(
    args: &Args,
    dataset: &Dataset,
    stop: &Stop,
    optimizer: O,
    scaler: Option<GradScaler>,
) -> Result<Model<Wgsl>> {
    let device = args.device();
    B::seed(&device, args.seed);
    let loader = LoaderConfig { workers: 0, ..LoaderConfig::new(args.batch as usize) };
    let loader =
        Loader::new(InMemDataset::new(digits_of(&dataset.train)), DigitBatcher, &device, loader)?;
    let loader = Arc::new(loader.with_sampler(Shuffled { seed: args.seed })?);
    let mut training =
        SupervisedTraining::new(&args.folder, loader.clone(), test_loader(dataset, args))
            // Burn computes metrics on burn-flex, from batches that were read back.
            .metrics((AccuracyMetric::new(), LossMetric::new()))
            // Burn's logger would write to a file and replace the panic hook.
            .with_application_logger(None)
            .num_epochs(args.epochs);
    if args.plain || !cfg!(feature = "tui") {
        training = training.renderer(EpochLines::default());
    }
    let mixed = Mixed { precision: args.precision, scaler };
    let classifier = Classifier::new(Model::new(&device), mixed);
    let learner = Learner::new(classifier, optimizer, args.learning_rate);
    let trained = if let Some(devices) = &args.devices {
        let workers = devices.clone().oversubscribed(args.oversubscribe);
        let strategy = ParallelStrategy::new(workers).with_seed(args.seed).with_stop(stop.clone());
        let custom = TrainingStrategy::Custom(Arc::new(strategy.clone()));
        let trained = training.with_training_strategy(custom).launch(learner);
        strategy.result()?;
        trained.model
    } else {
        let config = RunConfig { every: args.checkpoint_every, ..RunConfig::default() };
        let run = Run::open(args.folder.join("checkpoints"), &[device], config)?;
        let settings = (args.precision.to_string(), args.learning_rate);
        let settings = move |parts: &mut Parts<'_>| parts.setting("settings", &settings);
        let run = run.with_stop(stop.clone());
        let strategy = RunStrategy::with_parts(run, loader, args.resume, settings);
        let custom = TrainingStrategy::Custom(Arc::new(strategy.clone()));
        let trained = training.with_training_strategy(custom).launch(learner);
        strategy.result()?;
        trained.model
    };

    // The format of the digits example: `digits --epochs 0 --load FILE` tests the model.
    let model = trained.into_model();
    let file = args.folder.join("model.mpk");
    std::fs::write(&file, weights::to_bytes(model.clone())?)
        .with_context(|| format!("cannot write the model file {}", file.display()))?;
    println!("model saved to {}", file.display());
    Ok(model)
}

/// Returns the loader of the test images. Without `set_device`, its batches would be on the default device.
fn test_loader(dataset: &Dataset, args: &Args) -> Arc<dyn DataLoader<Wgsl, Batch<Wgsl>>> {
    DataLoaderBuilder::new(DigitBatcher)
        .batch_size(args.batch as usize)
        .set_device(args.device())
        .build(InMemDataset::new(digits_of(&dataset.test)))
}
