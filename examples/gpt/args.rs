//! The command line.

use std::path::PathBuf;

use burn_wgsl::train::BatchSize;
use burn_wgsl::{Precision, WgslDevice};
use clap::{CommandFactory, Parser, error::ErrorKind};
use gpt::model::Sizes;
use gpt::weights::Form;

/// Train a small GPT of characters, in one or several precisions, and print text that it writes.
#[derive(Parser)]
#[command(name = "gpt")]
pub struct Args {
    /// Device to train on: auto, cpu, software, gpu:0, discrete:0, ... [default: BURN_WGSL_DEVICE,
    /// else auto]
    #[arg(long, value_name = "SELECTOR")]
    pub device: Option<WgslDevice>,

    /// Types in which products are computed: f32, f16, bf16, or several separated by commas, each of
    /// which trains a model of its own (autocast; f16 with a loss scale)
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f32")]
    pub precision: Vec<Precision>,

    /// Training steps
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,

    /// Excerpts of the text per step; `auto` tries sizes, and trains with the fastest that the memory holds
    #[arg(long, value_name = "N", default_value = "16")]
    pub batch: BatchSize,

    /// Tokens of an excerpt
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub context: u32,

    /// Elements that represent a token
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub width: u32,

    /// Attention heads; they divide the width
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub heads: u32,

    /// Layers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub layers: u32,

    /// Random seed of the initial weights and the excerpts
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Learning rate of the Adam optimizer
    #[arg(long, value_name = "X", default_value_t = 1e-3, value_parser = parse_positive)]
    pub learning_rate: f64,

    /// Save checkpoints in this folder, in one of its own for each precision: at the end, and at Ctrl-C or SIGTERM
    #[arg(long, value_name = "FOLDER")]
    pub checkpoints: Option<PathBuf>,

    /// Save a checkpoint also after every N steps
    #[arg(long, value_name = "N", requires = "checkpoints", value_parser = clap::value_parser!(u64).range(1..))]
    pub checkpoint_every: Option<u64>,

    /// Continue after the newest checkpoint, with the same bits as a run that was not interrupted
    #[arg(long, requires = "checkpoints")]
    pub resume: bool,

    /// Train on this file instead of the shaders of burn-wgsl. UTF-8; each character is a token
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,

    /// Where the text begins that each model writes
    #[arg(long, value_name = "TEXT", default_value = "fn ")]
    pub prompt: String,

    /// Characters that each model writes
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub sample: u32,

    /// How freely they are chosen: 0 selects the most likely one
    #[arg(long, value_name = "X", default_value_t = 0.8, value_parser = parse_temperature)]
    pub temperature: f32,

    /// The most likely characters among which one is chosen; 0: all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub top_k: usize,

    /// The probability of the most likely characters among which one is chosen
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = parse_top_p)]
    pub top_p: f32,

    /// Forms of the weights in which the trained model is tested and writes text: f32, f16, int8, int4, or several
    /// separated by commas
    #[arg(long, value_name = "FORMS", value_delimiter = ',', default_value = "f32")]
    pub weights: Vec<Form>,

    /// Write the measurements as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Args {
    /// Parses the command line. If it is invalid, prints the error and exits with code 2.
    pub fn from_command_line() -> Self {
        let args = Self::parse();
        if !args.width.is_multiple_of(args.heads) {
            let message = format!("--heads {} does not divide --width {}", args.heads, args.width);
            Self::command().error(ErrorKind::ValueValidation, message).exit();
        }
        args
    }

    /// Returns the sizes of the model.
    pub fn sizes(&self) -> Sizes {
        let [context, width, heads, layers] =
            [self.context, self.width, self.heads, self.layers].map(|size| size as usize);
        Sizes { context, width, heads, layers }
    }
}

fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a number above 0".into()),
    }
}

fn parse_temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a number of at least 0".into()),
    }
}

fn parse_top_p(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value > 0.0 && value <= 1.0 => Ok(value),
        _ => Err("expected a number above 0, and at most 1".into()),
    }
}
