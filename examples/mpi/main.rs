//! Trains the digits network with the ranks of an MPI job, with the devices of one process, or with one device. The
//! program is the same.
//!
//! `mpirun -n 2 mpi-digits`, `mpi-digits --devices gpu:0,gpu:1`, or `mpi-digits`; `--help` lists the options.

mod args;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn_wgsl::parallel::Worker;
use burn_wgsl::train::{Checkpoint, CheckpointError, Parts, Run, RunConfig, Saved, Stop};
use burn_wgsl::{Autodiff, Wgsl};
use burn_wgsl_mpi::Job;
use digits::data::{Dataset, Samples};
use digits::learner::Learner;
use digits::model::Model;
use digits::rng::Rng;
use digits::tensors::{SampleTensors, int_tensor};

use args::Args;

type B = Autodiff<Wgsl>;

/// Steps between two comparisons of the workers' parameters.
const COMPARE_EVERY: u64 = 100;

fn main() -> ExitCode {
    let filter = env_logger::Env::default().default_filter_or("error");
    env_logger::Builder::from_env(filter).init();
    let args = Args::from_command_line();
    match run(&args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Trains. Returns the exit code.
fn run(args: &Args) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let dataset = match &args.data {
        Some(path) => Dataset::read(path)?,
        None => Dataset::built_in()?,
    };
    let mut job = Job::new(args.workers()).in_bf16(args.bf16);
    if let Some(expected) = args.workers {
        job = job.expects(expected as usize);
    }
    burn_wgsl_mpi::run(job, |worker| work(args, &dataset, worker, &stop))?;
    Ok(stop.exit_code())
}

/// A worker's run in training: what a checkpoint holds.
struct Training {
    learner: Learner<B>,
    settings: (usize, u64, f64, usize),
    epoch: u64,
    /// Images of the epoch that all workers have behind them.
    images: usize,
    steps: u64,
}

impl Saved for Training {
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        parts.setting("settings", &self.settings)?;
        parts.module("model", &mut self.learner.model)?;
        parts.optimizer("optimizer", &mut self.learner.optimizer)?;
        parts.value("epoch", &mut self.epoch)?;
        parts.value("images", &mut self.images)?;
        parts.value("steps", &mut self.steps)
    }
}

/// The program of each worker.
fn work(args: &Args, dataset: &Dataset, worker: &Worker, stop: &Stop) -> Result<()> {
    let device = worker.device();
    let (count, batch) = (dataset.train.labels.len(), args.batch as usize);
    let settings = (args.epochs, args.batch, args.seed, args.learning_rate);
    worker.agree("the settings", format!("{settings:?}"))?;
    worker.agree("the number of images", count)?;
    ensure!(batch >= worker.world(), "--batch {batch} is less than the number of workers");
    worker.seed::<B>(args.seed);
    let model = worker.broadcast(Model::new(&device))?;
    let mut training = Training {
        learner: Learner::new(model, &device),
        settings: (batch, args.seed, args.learning_rate, count),
        epoch: 0,
        images: 0,
        steps: 0,
    };
    let mut saved = match &args.checkpoints {
        Some(folder) => begin(args, folder, worker, &mut training)?,
        None => None,
    };
    if worker.is_first() {
        println!("{} workers, the first on {}", worker.world(), device.describe()?);
    }
    let train = SampleTensors::<B>::new(&dataset.train, &device);
    while training.epoch < u64::from(args.epochs) {
        let mut order = Rng(args.seed ^ training.epoch);
        let order = order.permutation(count);
        let mut loss_sum = 0.0;
        while training.images < count {
            let end = count.min(training.images + batch);
            let own = worker.range(end - training.images);
            let items = &order[training.images..end][own];
            loss_sum += training.step(worker, &train, items, args.learning_rate)?;
            training.images = end;
            // All workers end after the same step.
            let stops = f64::from(u8::from(stop.is_requested()));
            let stops = worker.sum(&[stops])?[0] > 0.0;
            if let Some(run) = &mut saved {
                run.end_step(&mut training)?;
            }
            if stops {
                if let Some(run) = &mut saved {
                    run.save(&mut training, None)?;
                    run.finish()?;
                }
                return Ok(());
            }
        }
        (training.epoch, training.images) = (training.epoch + 1, 0);
        // All have waited for each step, and now for the loss.
        let loss = worker.sum(&[loss_sum])?[0] / count as f64;
        let accuracy = test(worker, &training.learner.model.valid(), &dataset.test)?;
        if worker.is_first() {
            println!(
                "epoch {:>3}/{}   loss {loss:.4}   test accuracy {:6.2} %",
                training.epoch,
                args.epochs,
                accuracy * 100.0
            );
        }
        if let Some(run) = &mut saved {
            run.save(&mut training, Some(accuracy))?;
        }
    }
    if let Some(run) = &mut saved {
        run.finish()?;
    }
    Ok(())
}

impl Training {
    /// Takes a step with this worker's images of a batch. Returns the sum of their losses.
    fn step(
        &mut self,
        worker: &Worker,
        train: &SampleTensors<B>,
        items: &[i32],
        rate: f64,
    ) -> Result<f64> {
        let mut loss_sum = 0.0;
        let mut gradients = GradientsParams::new();
        let model = self.learner.model.clone();
        // The last batch may have fewer images than there are workers.
        let watched = worker.watch(&model, items.len())?;
        if !items.is_empty() {
            let (images, labels) = train.select(int_tensor(items.to_vec(), &worker.device()));
            self.learner.model = watched;
            let loss = self.learner.loss(images, labels);
            gradients = GradientsParams::from_grads(loss.backward(), &model);
            let loss: f64 = loss.into_scalar().into();
            loss_sum = loss * items.len() as f64;
            ensure!(loss.is_finite(), "the loss became {loss}; try a smaller --learning-rate");
        }
        let gradients = worker.mean(gradients, &model, items.len())?;
        self.learner.model = model;
        self.learner = self.learner.clone().update(gradients, rate);
        self.steps += 1;
        if self.steps.is_multiple_of(COMPARE_EVERY) {
            self.learner.model = worker.keep_equal(self.learner.model.clone())?;
        }
        Ok(loss_sum)
    }
}

/// Opens the folder of the checkpoints on the first worker, and resumes all.
fn begin(
    args: &Args,
    folder: &Path,
    worker: &Worker,
    training: &mut Training,
) -> Result<Option<Run>> {
    let device = worker.device();
    let mut saved = None;
    if worker.is_first() {
        let config = RunConfig { every: args.checkpoint_every, ..RunConfig::default() };
        let mut run = Run::open(folder, &[device], config)?;
        if let Some(found) = run.begin(args.resume, training)? {
            println!("resumed after {} steps", found.step);
        }
        saved = Some(run);
    }
    // The others read what the first has found, of a file system that all machines share.
    let steps = worker.sum(&[training.steps as f64])?[0];
    if steps > 0.0 && !worker.is_first() {
        let found = Checkpoint::latest(folder)?.context("the checkpoint is gone")?;
        ensure!(found.step as f64 == steps, "the first worker has the checkpoint of another step");
        found.restore(training, &device)?;
        // The checkpoint has the random numbers of the first.
        worker.seed::<B>(args.seed ^ training.steps);
    }
    Ok(saved)
}

/// Tests the network of the first worker. Returns the share of the test images that it classifies correctly.
fn test(worker: &Worker, model: &Model<Wgsl>, samples: &Samples) -> Result<f64> {
    let model = worker.broadcast(model.clone())?;
    let own = worker.range(samples.labels.len());
    let pixels = samples.pixels.len() / samples.labels.len();
    let own = Samples {
        pixels: samples.pixels[own.start * pixels..own.end * pixels].to_vec(),
        labels: samples.labels[own].to_vec(),
    };
    let mut correct = 0.0;
    if !own.labels.is_empty() {
        let count = SampleTensors::<Wgsl>::new(&own, &worker.device()).count_correct(&model);
        correct = count.map_or(0.0, |count| f64::from(count.into_scalar()));
    }
    Ok(worker.sum(&[correct])?[0] / samples.labels.len() as f64)
}
