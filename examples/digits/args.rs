//! The command line.

use std::path::PathBuf;

use burn_wgsl::parallel::Workers;
use burn_wgsl::train::BatchSize;
use burn_wgsl::{Precision, WgslDevice};
use clap::{CommandFactory, Parser, error::ErrorKind};

/// Train a small CNN on handwritten digits, on any GPU or on the CPU.
#[derive(Clone, Parser)]
#[command(name = "digits")]
pub struct Args {
    /// Device to train on: auto, cpu, software, gpu:0, discrete:0, ... [default: BURN_WGSL_DEVICE,
    /// else auto]
    #[arg(long, value_name = "SELECTOR")]
    pub device: Option<WgslDevice>,

    /// Devices that train together, each with a part of each batch: gpu:0,gpu:1
    #[arg(
        long,
        value_name = "SELECTORS",
        conflicts_with_all = ["device", "compare", "profile", "memory"]
    )]
    pub devices: Option<Workers>,

    /// Allow several workers on one device of --devices
    #[arg(long, requires = "devices")]
    pub oversubscribe: bool,

    /// Divide batches by the speed of the devices, measured in each epoch
    #[arg(long, requires = "devices")]
    pub balance: bool,

    /// Passes over the training images; 0 only tests the model of --load
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(..=100_000)
    )]
    pub epochs: u32,

    /// Images per training step; `auto` tries sizes, and trains with the fastest that the memory holds
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value = "64")]
    pub batch: BatchSize,

    /// Random seed of the initial weights, the dropout and the order of the images
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1)]
    pub seed: u64,

    /// Learning rate of the Adam optimiser
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        default_value_t = 1e-3,
        value_parser = parse_positive
    )]
    pub learning_rate: f64,

    /// Type in which products and convolutions are computed: f32, f16 (with a scaled loss) or bf16 (autocast)
    /// [default: BURN_WGSL_AUTOCAST, else f32]
    #[arg(long, value_name = "TYPE")]
    pub precision: Option<Precision>,

    /// Repeat the run on the CPU, in f32, and compare both in a table and a plot (see --plot)
    #[arg(long)]
    pub compare: bool,

    /// Plot loss and time per epoch as SVG [default with --compare: digits.svg]
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// Save the trained model
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Start from a model saved with --save
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,

    /// Write the measurements as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Save checkpoints in this folder: after each epoch, and at Ctrl-C or SIGTERM
    #[arg(long, value_name = "FOLDER")]
    pub checkpoints: Option<PathBuf>,

    /// Save a checkpoint also after every N steps
    #[arg(
        long,
        value_name = "N",
        requires = "checkpoints",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub checkpoint_every: Option<u64>,

    /// Continue after the newest checkpoint, with the same bits as a run that was not interrupted
    #[arg(long, requires = "checkpoints", conflicts_with = "load")]
    pub resume: bool,

    /// Profile three training steps on the GPU: print the time of each kernel and the memory of each
    /// op, and write a trace for ui.perfetto.dev, or a page if the name ends in .html
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,

    /// Record the memory of the GPU, and write a page with a chart of it
    #[arg(long, value_name = "FILE")]
    pub memory: Option<PathBuf>,

    /// Train on this file instead of the built-in images. CSV, plain or gzip: each line has 64
    /// pixels (0 to 16) and a label (0 to 9). The last fifth of the lines is for testing
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
}

impl Args {
    /// Returns the devices that train together, or the one device.
    pub fn workers(&self) -> Workers {
        match &self.devices {
            Some(devices) => devices.clone().oversubscribed(self.oversubscribe),
            None => Workers::alone(self.device.unwrap_or_default()),
        }
    }

    /// Parses the command line. If it is invalid, prints the error and exits with code 2.
    pub fn from_command_line() -> Self {
        let mut args = Self::parse();
        let exit_with_error = |message: &str| -> ! {
            Self::command().error(ErrorKind::ValueValidation, message).exit()
        };
        if args.epochs == 0 && args.load.is_none() {
            exit_with_error("--epochs 0 only tests a model; select one with --load FILE");
        }
        if args.epochs == 0 && (args.compare || args.plot.is_some()) {
            exit_with_error(
                "--epochs 0 does not train, so --compare and --plot have nothing to show",
            );
        }
        if args.epochs == 0 && args.checkpoints.is_some() {
            exit_with_error("--epochs 0 does not train, so --checkpoints has nothing to save");
        }
        let many = args.devices.as_ref().is_some_and(|devices| devices.len() > 1);
        if many && args.batch == BatchSize::Auto {
            exit_with_error("--batch auto is for one device; give the batch of all --devices");
        }
        if args.compare && args.plot.is_none() {
            args.plot = Some("digits.svg".into());
        }
        args
    }
}

fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a number above 0".into()),
    }
}
