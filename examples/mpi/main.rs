//! Trains the digits network with the ranks of an MPI job, with the devices of one process, or with one device. The
//! training loop is that of the digits example.
//!
//! `mpirun -n 2 mpi-digits`, `mpi-digits --devices gpu:0,gpu:1`, or `mpi-digits`; `--help` lists the options.

mod args;
#[path = "../digits/train.rs"]
mod train;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use burn_wgsl::parallel::{SharedRun, Worker};
use burn_wgsl::scaler::GradScalerConfig;
use burn_wgsl::train::{RunConfig, Stop};
use burn_wgsl_mpi::Job;
use digits::data::Dataset;
use digits::learner::{Learner, adam};
use digits::model::Model;

use args::Args;
use train::{B, Options, Settings};

fn main() -> ExitCode {
    let start = Instant::now();
    let filter = env_logger::Env::default().default_filter_or("error");
    env_logger::Builder::from_env(filter).init();
    let args = Args::from_command_line();
    match run(&args, start) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Trains. Returns the exit code.
fn run(args: &Args, start: Instant) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let dataset = match &args.data {
        Some(path) => Dataset::read(path)?,
        None => Dataset::built_in()?,
    };
    let mut job = Job::new(args.workers()).in_bf16(args.bf16);
    if let Some(expected) = args.workers {
        job = job.expects(expected as usize);
    }
    burn_wgsl_mpi::run(job, |worker| work(args, &dataset, worker, &stop, start))?;
    Ok(stop.exit_code())
}

/// The program of each worker.
fn work(
    args: &Args,
    dataset: &Dataset,
    worker: &Worker,
    stop: &Stop,
    start: Instant,
) -> Result<()> {
    let device = worker.device();
    let settings = Settings {
        batch: args.batch as usize,
        seed: args.seed,
        learning_rate: args.learning_rate,
        precision: "f32".to_owned(),
        images: dataset.train.labels.len(),
    };
    let (batch, world) = (settings.batch, worker.world());
    ensure!(batch >= world, "--batch {batch} is less than the number of workers");
    worker.agree("the settings", format!("{settings:?}, {} epochs", args.epochs))?;
    worker.seed::<B>(args.seed);
    let model = worker.broadcast(Model::new(&device))?;
    let scaler = GradScalerConfig { enabled: false, ..GradScalerConfig::default() }.init(&device);
    let learner = Learner::with_optimizer(model, scaler.wrap(adam()), &device);
    if worker.is_first() {
        println!("{world} workers, the first on {}", device.describe()?);
    }
    let mut saved = SharedRun::new(worker, stop.clone());
    if let Some(folder) = &args.checkpoints {
        let config = RunConfig { every: args.checkpoint_every, ..RunConfig::default() };
        saved = saved.saved_to(folder, config)?;
    }
    let (epochs, balances, resumes) = (args.epochs as usize, args.balance, args.resume);
    let options = Options { epochs, settings, scaler, balances, resumes };
    let (_, history) = train::train(learner, dataset, &options, saved, worker, start, || Ok(()))?;
    if worker.is_first() {
        println!("test accuracy {:.2} %", history.test_accuracy * 100.0);
    }
    Ok(())
}
