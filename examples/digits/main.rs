//! Trains a small CNN on handwritten digits with the `Wgsl` backend: on a GPU, or on the CPU where there is none.
//!
//! `cargo run --release --example digits -- --help` lists the options.

mod args;
mod plot;
mod report;
mod store;
mod train;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use burn::tensor::backend::Backend;
use burn_wgsl::device::{ResolvedDevice, automatic, install_hint};
use burn_wgsl::{Wgsl, WgslDevice};
use digits::data::Digits;
use digits::model::Model;
use digits::weights;

use args::Args;
use report::Run;
use store::Output;

/// Set by Ctrl-C; the run ends after the step that is under way.
static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let start = Instant::now();
    // The library also warns where it finds no GPU: `run` says that itself, with what to do about it.
    let filter = env_logger::Env::default().default_filter_or("warn,burn_wgsl::device=error");
    env_logger::Builder::from_env(filter).init();
    let args = Args::from_command_line();
    // A device that is not there is a mistake on the command line, as an unknown word is: code 2.
    let device = args.device.unwrap_or_default();
    let place = match device.resolve() {
        Ok(place) => place,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    match run(&args, device, place, start) {
        Ok(()) if STOP.load(Ordering::Relaxed) => ExitCode::from(130),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args, device: WgslDevice, place: ResolvedDevice, start: Instant) -> Result<()> {
    let output = |option, path: &Option<_>| -> Result<Option<Output>> {
        let path: Option<&Path> = path.as_deref();
        path.map(|path| Output::new(option, path)).transpose()
    };
    let save = output("--save", &args.save)?;
    let json = output("--json", &args.json)?;
    let plot = output("--plot", &args.plot)?;
    let digits = match &args.data {
        Some(path) => Digits::read(path)?,
        None => Digits::built_in()?,
    };
    let mut asked: Option<Instant> = None;
    ctrlc::set_handler(move || match asked {
        None => {
            asked = Some(Instant::now());
            STOP.store(true, Ordering::Relaxed);
            // On a line of its own: the progress bar's is in use.
            eprintln!("\nstopping after this step (Ctrl-C again: at once)");
        }
        // Whoever asks again does not want to wait. One request may arrive twice, to the process and to its group.
        Some(first) if first.elapsed() > Duration::from_secs(1) => std::process::exit(130),
        Some(_) => {}
    })
    .context("cannot listen for Ctrl-C")?;

    // The CPU comes as a surprise only where nobody named it, here or in the environment.
    if matches!(device, WgslDevice::Auto) && automatic()?.no_gpu_found {
        println!("No GPU found, training on the CPU: {}", install_hint());
    }
    println!("{} training and {} test images", digits.train.labels.len(), digits.test.labels.len());
    let (ours, model) = train_on(device, args, &digits, start)?;
    if let Some(file) = &save {
        file.write(&weights::to_bytes(model)?)?;
        println!("model saved to {}", file.path().display());
    }
    let on_cpu = matches!(place, ResolvedDevice::Cpu);
    let mut cpu = None;
    if args.compare && on_cpu {
        println!("nothing to compare: the run was on the CPU");
    } else if args.compare && !ours.history.interrupted {
        println!();
        let (run, _) = train_on(WgslDevice::Cpu, args, &digits, Instant::now())?;
        println!("\n{}", report::table(&ours, &run));
        cpu = Some(run);
    }
    if let Some(file) = &plot
        && !ours.history.seconds.is_empty()
    {
        file.write(plot::svg(&ours, cpu.as_ref())?.as_bytes())?;
        println!("picture written to {}", file.path().display());
    }
    if let Some(file) = &json {
        file.write(&report::json(args, &digits, &ours, cpu.as_ref()))?;
        println!("measurements written to {}", file.path().display());
    }
    Ok(())
}

/// One whole run on one device. The seed fixes everything but the device.
fn train_on(
    device: WgslDevice,
    args: &Args,
    digits: &Digits,
    start: Instant,
) -> Result<(Run, Model<Wgsl>)> {
    type B = Autodiff<Wgsl>;
    burn_wgsl::reset_fallbacks();
    let adapter = device.describe()?;
    B::seed(&device, args.seed);
    let mut model = Model::<B>::new(&device);
    if let Some(path) = &args.load {
        let bytes = std::fs::read(path)
            .with_context(|| format!("cannot read the model file {}", path.display()))?;
        model = weights::from_bytes(model, &path.display().to_string(), bytes, &device)?;
    }
    println!("a model of {} parameters on {adapter}, seed {}", model.num_params(), args.seed);
    let options = train::Options {
        epochs: args.epochs as usize,
        batch: args.batch as usize,
        seed: args.seed,
        learning_rate: args.learning_rate,
    };
    let (model, history) = train::train(model, digits, options, &device, start, &STOP)?;
    let run =
        Run { device: device.to_string(), adapter, history, fallbacks: burn_wgsl::fallbacks() };
    println!("{}", run.summary());
    Ok((run, model.valid()))
}
