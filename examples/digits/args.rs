//! The command line.

use std::path::PathBuf;

use burn_wgsl::WgslDevice;
use clap::{CommandFactory, Parser, error::ErrorKind};

/// Train a small CNN on handwritten digits, on any GPU or on the CPU.
#[derive(Parser)]
#[command(name = "digits")]
pub struct Args {
    /// Where to train: auto, cpu, software, gpu:0, discrete:0, ... [default: BURN_WGSL_DEVICE, else auto]
    #[arg(long, value_name = "WORD")]
    pub device: Option<WgslDevice>,

    /// Times through the training images; 0, with --load, only tests the model
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 20, value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub epochs: u32,

    /// Images per training step
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,

    /// Seed of the weights, the dropout and the shuffles
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1)]
    pub seed: u64,

    /// Step size of the Adam optimizer
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value_t = 1e-3, value_parser = positive)]
    pub learning_rate: f64,

    /// Do the same run on the CPU too and compare: a table here, and a picture (see --plot)
    #[arg(long)]
    pub compare: bool,

    /// Draw the run as an SVG picture [default with --compare: digits.svg]
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// Save the trained model
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Start from a model that --save wrote
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,

    /// Write what was measured as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Other images in the form of digits.csv: 64 pixels (0 to 16) and a label a line, plain or gzip; the last fifth tests
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
}

impl Args {
    /// Reads the command line; on a mistake, says so and ends the process with code 2.
    pub fn from_command_line() -> Self {
        let mut args = Self::parse();
        let wrong = |message: &str| -> ! {
            Self::command().error(ErrorKind::ValueValidation, message).exit()
        };
        if args.epochs == 0 && args.load.is_none() {
            wrong("--epochs 0 only tests a model: give one with --load FILE");
        }
        if args.epochs == 0 && (args.compare || args.plot.is_some()) {
            wrong("--epochs 0 leaves nothing to compare or to plot");
        }
        if args.compare && args.plot.is_none() {
            args.plot = Some("digits.svg".into());
        }
        args
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a number above 0".into()),
    }
}
