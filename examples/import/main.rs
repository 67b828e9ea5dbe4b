//! Loads a model from a file of PyTorch or safetensors, or one that came from ONNX, runs it, and saves it for PyTorch.
//!
//! `cargo run --release -p import -- --help` lists the options.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use burn::tensor::{Tensor, TensorData};
use burn_store::KeyRemapper;
use burn_wgsl::{Wgsl, WgslDevice};
use clap::{Parser, Subcommand, ValueEnum};
use import::models::{Cnn, Imported, Mlp, ResNet, Transformer, check_shape, data};
use import::{file, onnx, torch};
use serde::Deserialize;

/// Load a model from a file, run it, and save it for PyTorch.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A model whose weights are in a file of PyTorch or of safetensors
    Weights(Weights),
    /// The model of fixtures/cnn.onnx, which is part of the program
    Onnx(Run),
}

#[derive(clap::Args)]
struct Weights {
    /// The model
    model: Kind,

    /// A file of `torch.save(model.state_dict(), ...)`, or of safetensors
    file: PathBuf,

    /// Replace a pattern (a regular expression) in the names of the file's tensors, as in `^module\.=`; $1 in the text
    /// is the first group
    #[arg(long, value_name = "PATTERN=TEXT", value_parser = parse_renaming)]
    rename: Vec<(String, String)>,

    /// Fold batch norms into convolutions
    #[arg(long)]
    fold: bool,

    /// Save the weights as a file of safetensors for PyTorch
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,

    #[command(flatten)]
    run: Run,
}

#[derive(clap::Args)]
struct Run {
    /// JSON with the "shape" and the values of an "input", and the "output" that is expected if it is known
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Device: auto, cpu, software, gpu:0, discrete:0, ... [default: BURN_WGSL_DEVICE, else auto]
    #[arg(long, value_name = "SELECTOR")]
    device: Option<WgslDevice>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Mlp,
    Cnn,
    Resnet,
    Transformer,
}

/// An input, and what the model should compute.
#[derive(Deserialize)]
struct Example {
    shape: Vec<usize>,
    input: Vec<f32>,
    output: Option<Vec<f32>>,
}

fn parse_renaming(text: &str) -> Result<(String, String), String> {
    let (pattern, name) = text.split_once('=').ok_or("it has no `=`")?;
    Ok((pattern.to_owned(), name.to_owned()))
}

fn main() -> ExitCode {
    let filter = env_logger::Env::default().default_filter_or("warn");
    env_logger::Builder::from_env(filter).init();
    let result = match &Args::parse().command {
        Command::Weights(args) => match args.model {
            Kind::Mlp => weights::<Mlp<Wgsl>>(args),
            Kind::Cnn => weights::<Cnn<Wgsl>>(args),
            Kind::Resnet => weights::<ResNet<Wgsl>>(args),
            Kind::Transformer => weights::<Transformer<Wgsl>>(args),
        },
        Command::Onnx(args) => run_onnx(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn weights<M: Imported<Wgsl>>(args: &Weights) -> Result<()> {
    let device = open(&args.run)?;
    let names = KeyRemapper::from_pattern_iter(args.rename.iter().cloned());
    let names = names.map_err(|error| anyhow!("--rename: {error}"))?;
    let tensors = file::read(&args.file, &names)?;
    let mut model = M::new(&device);
    let loaded = torch::load(&mut model, &tensors);
    loaded.with_context(|| format!("cannot load {}", args.file.display()))?;
    println!("{} parameters from {}", model.num_params(), args.file.display());
    if args.fold {
        model = model.folded();
        println!("{} parameters with batch norms folded into convolutions", model.num_params());
    }
    if let Some(path) = &args.export {
        let written = std::fs::write(path, torch::to_bytes(&model)?);
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    run(&args.run, |input| Ok(model.run(input, &device)?))
}

fn run_onnx(args: &Run) -> Result<()> {
    let device = open(args)?;
    let model = onnx::OnnxCnn::<Wgsl>::new(&device);
    run(args, |input| {
        check_shape(&input, &[0, 1, 12, 12])?;
        Ok(data(model.forward(Tensor::from_data(input, &device)))?)
    })
}

/// Returns the device, and says which one it is.
fn open(args: &Run) -> Result<WgslDevice> {
    let device = args.device.unwrap_or_default();
    eprintln!("on {}", device.describe()?);
    Ok(device)
}

/// Prints what a model computes for the input, and how far from the output it is that the file has.
fn run(args: &Run, model: impl Fn(TensorData) -> Result<TensorData>) -> Result<()> {
    let Some(path) = &args.input else { return Ok(()) };
    let example = read_example(path).with_context(|| format!("cannot read {}", path.display()))?;
    let output = model(TensorData::new(example.input, example.shape))?;
    let found: Vec<f32> = output.iter::<f32>().collect();
    println!("{}", serde_json::json!({ "shape": output.shape.to_vec(), "output": found }));
    let Some(expected) = example.output else { return Ok(()) };
    ensure!(
        expected.len() == found.len(),
        "{} has {} outputs, and the model {}",
        path.display(),
        expected.len(),
        found.len()
    );
    let differences = found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs());
    // NaN is the largest in this order.
    println!("largest difference: {:e}", differences.max_by(f32::total_cmp).unwrap_or(0.0));
    Ok(())
}

fn read_example(path: &Path) -> Result<Example> {
    let example: Example = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let count = example.shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
    let count = count.ok_or_else(|| anyhow!("the shape {:?} is too large", example.shape))?;
    ensure!(
        count == example.input.len(),
        "{} values do not have the shape {:?}",
        example.input.len(),
        example.shape
    );
    Ok(example)
}
