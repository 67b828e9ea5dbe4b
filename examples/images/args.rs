//! The command line.

use std::path::PathBuf;

use burn_wgsl::parallel::Workers;
use burn_wgsl::train::BatchSize;
use burn_wgsl::{Precision, WgslDevice};
use clap::{CommandFactory, Parser, error::ErrorKind};

use crate::model::Kind;

/// Train a classifier of images: Fashion-MNIST, MNIST, or folders of PNG and JPEG files.
#[derive(Debug, Clone, Parser)]
#[command(name = "images")]
pub struct Args {
    /// Device to train on: auto, cpu, software, gpu:0, ... [default: BURN_WGSL_DEVICE, else auto]
    #[arg(long, value_name = "SELECTOR")]
    pub device: Option<WgslDevice>,

    /// Train on several devices, each with a part of every batch: gpu:0,gpu:1
    #[arg(long, value_name = "SELECTORS", conflicts_with = "device")]
    pub devices: Option<Workers>,

    /// Allow several workers on one device
    #[arg(long, requires = "devices")]
    pub oversubscribe: bool,

    /// Folder with the IDX files of MNIST or Fashion-MNIST, or with a folder of pictures for each class in `train` and
    /// `test`. Without it, shapes are drawn
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,

    /// Train on the first N images only, and test on a sixth as many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,

    /// Pixels a side of pictures from folders [default: 224] and of shapes [default: 28]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..=1024))]
    pub side: Option<u32>,

    /// Network
    #[arg(long, value_name = "NAME", default_value = "cnn")]
    pub model: Kind,

    /// Passes over the training images
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,

    /// Images in memory at a time; `auto` tries sizes, and trains with the fastest that the memory holds
    #[arg(long, value_name = "N", default_value = "64")]
    pub batch: BatchSize,

    /// Batches whose gradients are one step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub accumulate: u32,

    /// Compute the activations of ResNet-18 again in the backward pass, in place of keeping them
    #[arg(long)]
    pub recompute: bool,

    /// The largest learning rate of the AdamW optimizer, from which it falls along a cosine
    #[arg(long, value_name = "X", default_value_t = 1e-3, value_parser = parse_positive)]
    pub learning_rate: f64,

    /// Test the average of the weights, which this share of the average before is kept in each step
    #[arg(long, value_name = "X", value_parser = parse_decay)]
    pub average: Option<f64>,

    /// Type in which products and convolutions are computed: f32, f16 (with a scaled loss) or bf16
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    pub precision: Precision,

    /// Threads that prepare batches; 0 prepares them between the steps
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub workers: usize,

    /// Train on the images as they are, not shifted and mirrored at random
    #[arg(long)]
    pub plain: bool,

    /// Random seed of the weights, the dropout, the order and the augmentation
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Save checkpoints in this folder: after each epoch, and at Ctrl-C or SIGTERM
    #[arg(long, value_name = "FOLDER")]
    pub checkpoints: Option<PathBuf>,

    /// Save a checkpoint also after every N steps
    #[arg(long, value_name = "N", requires = "checkpoints", value_parser = clap::value_parser!(u64).range(1..))]
    pub checkpoint_every: Option<u64>,

    /// Continue after the newest checkpoint, with the same bits as a run that was not interrupted
    #[arg(long, requires = "checkpoints")]
    pub resume: bool,

    /// Begin with weights that PyTorch saved: a state dictionary as .pt, .pth or .safetensors. Those of torchvision's
    /// ResNet-18 fit `--model resnet18` and pictures of more than 64 pixels a side
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub weights: Option<PathBuf>,

    /// Save the weights to a .safetensors file, with PyTorch's names and layouts; those of `--model resnet18` for
    /// pictures of more than 64 pixels a side fit torchvision's
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Write the curves and the confusion matrix as pictures to this folder
    #[arg(long, value_name = "FOLDER")]
    pub pictures: Option<PathBuf>,

    /// Write the measurements, as they come, to this folder: `scalars.csv`, and a file for TensorBoard
    #[arg(long, value_name = "FOLDER")]
    pub log: Option<PathBuf>,

    /// Write the measurements as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Args {
    /// Parses the command line. If it is invalid, prints the error and exits with code 2.
    pub fn from_command_line() -> Self {
        let args = Self::parse();
        if args.recompute && args.model != Kind::Resnet18 {
            let message = "--recompute is for --model resnet18";
            Self::command().error(ErrorKind::ArgumentConflict, message).exit();
        }
        args
    }

    /// Returns the workers that train: one, or one on each device.
    pub fn run_on(&self) -> Workers {
        match &self.devices {
            Some(workers) => workers.clone().oversubscribed(self.oversubscribe),
            None => Workers::alone(self.device.unwrap_or_default()),
        }
    }
}

fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a number above 0".into()),
    }
}

fn parse_decay(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..1.0).contains(&value) => Ok(value),
        _ => Err("expected a number of at least 0 and below 1, such as 0.999".into()),
    }
}
