//! Trains a model in stages, each on a device of its own: a model that is too large for one of them.
//!
//! `cargo run --release -p pipeline -- --devices gpu:0,gpu:1`; `--help` lists the options. Without several GPUs, two
//! devices of one adapter show it:
//!
//! ```sh
//! pipeline --devices gpu:0 --limit 100                          # is too large
//! pipeline --devices gpu:0,gpu:0 --oversubscribe --limit 100
//! ```

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor, activation};
use burn_wgsl::memory::{self, Limit};
use burn_wgsl::parallel::{MicroBatch, Pipeline, PipelineStep, Schedule, Workers};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
use clap::{Parser, ValueEnum};

type B = Autodiff<Wgsl>;

/// Classes of the samples.
const CLASSES: usize = 4;
const MIB: u64 = 1 << 20;

/// Train a model in stages, each on a device of its own.
#[derive(Parser)]
#[command(name = "pipeline")]
struct Args {
    /// Devices, one for each stage: gpu:0,gpu:1
    #[arg(long, value_name = "SELECTORS", default_value = "auto")]
    devices: Workers,

    /// Allow several stages on one device
    #[arg(long)]
    oversubscribe: bool,

    /// Residual blocks of the model
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    blocks: u32,

    /// Features of the blocks
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    width: u32,

    /// Samples of a batch
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,

    /// Parts of a batch
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    micro_batches: u32,

    /// The order in which a stage computes them
    #[arg(long, value_enum, default_value = "one-forward-one-backward")]
    schedule: Order,

    /// Steps
    #[arg(long, value_name = "N", default_value_t = 20)]
    steps: u32,

    /// Limit the memory of each device to this many MiB
    #[arg(long, value_name = "MIB")]
    limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Order {
    AllForward,
    OneForwardOneBackward,
}

impl From<Order> for Schedule {
    fn from(order: Order) -> Self {
        match order {
            Order::AllForward => Self::AllForward,
            Order::OneForwardOneBackward => Self::OneForwardOneBackward,
        }
    }
}

/// A residual block of two layers.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    norm: LayerNorm<B>,
    wide: Linear<B>,
    narrow: Linear<B>,
}

impl<B: Backend> Block<B> {
    fn new(width: usize, device: &B::Device) -> Self {
        Self {
            norm: LayerNormConfig::new(width).init(device),
            wide: LinearConfig::new(width, 4 * width).init(device),
            narrow: LinearConfig::new(4 * width, width).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let y = activation::gelu(self.wide.forward(self.norm.forward(x.clone())));
        x + self.narrow.forward(y)
    }
}

/// Blocks that follow each other.
fn forward(blocks: &[Block<B>], x: Tensor<B, 2>) -> Tensor<B, 2> {
    blocks.iter().fold(x, |x, block| block.forward(x))
}

/// The stages of a model, and a last layer, which is on the device of the last stage.
#[derive(Module, Debug)]
struct Model<B: Backend> {
    stages: Vec<Vec<Block<B>>>,
    output: Linear<B>,
}

impl<B: Backend> Model<B> {
    /// Divides the blocks among the devices.
    fn new(blocks: usize, width: usize, devices: &[B::Device]) -> Self {
        let until = |stage: usize| blocks * stage / devices.len();
        let stage = |(index, device)| {
            (until(index)..until(index + 1)).map(|_| Block::new(width, device)).collect()
        };
        let last = &devices[devices.len() - 1];
        Self {
            stages: devices.iter().enumerate().map(stage).collect(),
            output: LinearConfig::new(width, CLASSES).init(last),
        }
    }
}

fn main() -> ExitCode {
    let filter = env_logger::Env::default().default_filter_or("warn");
    env_logger::Builder::from_env(filter).init();
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<()> {
    let devices = args.devices.oversubscribed(args.oversubscribe).open()?;
    let (first, last) = (devices[0], *devices.last().context("there is no device")?);
    let (batch, count) = (args.batch as usize, args.micro_batches as usize);
    ensure!(batch >= count, "--batch {batch} has fewer samples than --micro-batches {count}");
    for device in &devices {
        let limit = args.limit.map(|limit| Limit::Bytes(limit * MIB));
        memory::set_limit(device, limit).with_context(|| format!("--limit on {device}"))?;
    }
    let width = args.width as usize;
    for device in &devices {
        B::seed(device, 1);
    }
    let mut model = Model::<B>::new(args.blocks as usize, width, &devices);
    let parameters = model.num_params();
    println!("{parameters} parameters in {} stages", devices.len());
    let mut optimizer = AdamWConfig::new().init();
    // The class of a sample is that of the largest of some of its features.
    let samples = Tensor::<B, 2>::random([batch, width], Distribution::Default, &first);
    let labels = samples.clone().slice_dim(1, 0..CLASSES.min(width)).argmax(1).squeeze_dim(1);
    let labels: Tensor<B, 1, Int> = labels.to_device(&last);
    let mut start = Instant::now();
    for step in 0..args.steps {
        let micro_batches = (0..count).map(|index| {
            let rows = batch * index / count..batch * (index + 1) / count;
            MicroBatch {
                samples: rows.len(),
                input: samples.clone().slice_dim(0, rows.clone()),
                target: labels.clone().slice_dim(0, rows),
            }
        });
        let mut pipeline =
            Pipeline::start(&first, &model.stages[0], |blocks, x| forward(blocks, x));
        for (stage, device) in model.stages.iter().zip(&devices).skip(1) {
            pipeline = pipeline.then(device, stage, |blocks, x| forward(blocks, x));
        }
        let pipeline = pipeline.then(&last, &model.output, |output, x| output.forward(x));
        let PipelineStep { loss, gradients } =
            pipeline.step(micro_batches, args.schedule.into(), cross_entropy)?;
        model = optimizer.step(1e-3, model, gradients);
        for device in &devices {
            burn_wgsl::compute(device)?;
        }
        if step == 0 {
            // It compiles kernels.
            devices.iter().try_for_each(Wgsl::sync)?;
            start = Instant::now();
        }
        if step % 5 == 4 || step + 1 == args.steps {
            println!("step {:>3}   loss {:.4}", step + 1, loss.try_into_scalar()?);
        }
    }
    devices.iter().try_for_each(Wgsl::sync)?;
    let steps = args.steps.saturating_sub(1).max(1);
    println!("{:.1} ms for each step", start.elapsed().as_secs_f64() * 1e3 / f64::from(steps));
    report(&devices)
}

fn cross_entropy(y: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    CrossEntropyLossConfig::new().init(&y.device()).forward(y, labels)
}

/// Prints the memory that the stages needed.
fn report(devices: &[WgslDevice]) -> Result<()> {
    for (stage, device) in devices.iter().enumerate() {
        let peak = memory::usage(device)?.peak as f64 / MIB as f64;
        println!("stage {stage} on {}: {peak:.1} MiB at most", device.describe()?);
    }
    Ok(())
}
