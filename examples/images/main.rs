//! Trains a classifier of images with all parts of `burn_wgsl::train`: a loader, accumulation, averages, checkpoints,
//! metrics on the device.
//!
//! `cargo run --release -p images -- --help` lists the options.

mod args;
mod batches;
mod log;
mod model;
// The library of the digits example does without a file system.
#[path = "../digits/output.rs"]
mod output;
mod pictures;
mod sources;
#[cfg(test)]
mod tests;
mod trainer;
mod weights;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::tensor::backend::Backend;
use burn_wgsl::train::{
    BatchSearch, BatchSize, Checkpoint, CheckpointError, Confusion, ConfusionMatrix, Loader,
    LoaderConfig, Mean, MeanGradients, Parts, Readback, Run, RunConfig, Saved, Shuffled, Stop,
};
use burn_wgsl::{Wgsl, WgslDevice, autocast, waits_on_thread};
use serde::{Deserialize, Serialize};

use args::Args;
use batches::{Batch, Images};
use log::{Log, Scalar};
use model::Network;
use output::OutputFile;
use sources::{Augmented, Format, Labelled, Source};
use trainer::{B, Trainer};

/// Steps between two readings of the loss.
const REPORT_EVERY: u64 = 50;
/// Images of a batch that tests.
const TEST_BATCH: usize = 256;
/// Shapes that are drawn without a folder.
const SHAPES: usize = 6000;

/// What a resumed run must have in common with the run that it continues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Settings {
    model: String,
    precision: String,
    batch: usize,
    accumulate: u32,
    seed: u64,
    epochs: u32,
    learning_rate: f64,
    average: Option<f64>,
    images: usize,
    side: usize,
}

/// The measurements of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
struct History {
    /// The steps, and the mean loss of those before each.
    losses: Vec<(u64, f64)>,
    /// The epochs, and the accuracy after each.
    accuracies: Vec<(u64, f64)>,
    /// Seconds of the epochs.
    seconds: Vec<f64>,
    /// The share of them that steps waited for data.
    waited: Vec<f64>,
}

type TrainLoader = Loader<B, Labelled, Batch<B>>;

/// A run in training: what a checkpoint holds, and where its measurements are logged.
struct Training {
    trainer: Trainer,
    loader: Arc<TrainLoader>,
    settings: Settings,
    history: History,
    log: Option<Log>,
}

impl Training {
    /// Takes the mean loss of the steps before a step.
    fn add_loss(&mut self, reading: Option<(u64, Readback<f64>)>) -> Result<()> {
        let Some((step, reading)) = reading else { return Ok(()) };
        let loss = reading.take()?;
        ensure!(loss.is_finite(), "the loss became {loss}; try a smaller --learning-rate");
        self.history.losses.push((step, loss));
        self.log(step, &[(Scalar::Loss, loss)])
    }

    /// Notes the measurements of an epoch, which ended with a step.
    fn end_epoch(
        &mut self,
        epoch: u64,
        step: u64,
        accuracy: f64,
        seconds: f64,
        waited: f64,
    ) -> Result<()> {
        self.history.accuracies.push((epoch, accuracy));
        self.history.seconds.push(seconds);
        self.history.waited.push(waited);
        let values =
            [(Scalar::Accuracy, accuracy), (Scalar::Seconds, seconds), (Scalar::Waited, waited)];
        self.log(step, &values)
    }

    fn log(&mut self, step: u64, values: &[(Scalar, f64)]) -> Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        values.iter().try_for_each(|&(scalar, value)| log.add(step, scalar, value))
    }
}

impl Saved for Training {
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        parts.setting("settings", &self.settings)?;
        self.trainer.parts(parts)?;
        parts.loader("position", &self.loader)?;
        parts.value("history", &mut self.history)
    }
}

fn main() -> ExitCode {
    let filter = env_logger::Env::default().default_filter_or("warn");
    env_logger::Builder::from_env(filter).init();
    let args = Args::from_command_line();
    let result = Stop::on_signals().map_err(anyhow::Error::from).and_then(|stop| {
        run(&args, &stop)?;
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

/// Trains and tests a network. Returns the share of test images that it classifies correctly.
fn run(args: &Args, stop: &Stop) -> Result<f64> {
    let device = args.device.unwrap_or_default();
    let adapter = device.describe()?;
    if let Some(folder) = &args.pictures {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    }
    let output_file = |option, path: &Option<PathBuf>| -> Result<Option<OutputFile>> {
        path.as_deref().map(|path| OutputFile::new(option, path)).transpose()
    };
    let weights_file = output_file("--save", &args.save)?;
    let json_file = output_file("--json", &args.json)?;
    let source = source(args)?;
    let (train, test) = (source.train.len(), source.test.len());
    println!(
        "{train} images of {1} x {1} pixels for training, {test} for testing, {0} classes",
        source.classes.len(),
        source.format.side
    );
    let _precision = autocast(&device, args.precision);
    let batch = batch_size(args, &source, &device)?;
    let per_step = batch * args.accumulate as usize;
    let steps = train.div_ceil(per_step) * args.epochs as usize;
    let mut training = Training {
        trainer: Trainer::new(args, network(args, &source, &device)?, steps, &device)?,
        loader: Arc::new(loader(args, &source, batch, &device)?),
        settings: settings(args, &source, batch),
        history: History::default(),
        log: None,
    };
    let parameters = training.trainer.model().num_params();
    println!("{:?} with {parameters} parameters in {} on {adapter}", args.model, args.precision);
    let mut saved = None;
    if let Some(folder) = &args.checkpoints {
        let config = RunConfig { every: args.checkpoint_every, ..RunConfig::default() };
        let mut run = Run::open(folder, &[device], config)?.with_stop(stop.clone());
        if let Some(found) = run.begin(args.resume, &mut training)? {
            println!("resumed after {} steps", found.step);
        }
        saved = Some(run);
    }
    if let Some(folder) = &args.log {
        training.log = Some(Log::open(folder, saved.as_ref().map_or(0, Run::step))?);
    }
    let matrix = train_epochs(args, &source, &mut training, &mut saved, stop, &device)?;
    print!("\n{matrix}");
    println!("accuracy {:.2} % on {adapter}", matrix.accuracy() * 100.0);
    if let Some(file) = &weights_file {
        file.write(&weights::to_bytes(&training.trainer.model())?)?;
        println!("weights saved to {}", file.path().display());
    }
    if let Some(folder) = &args.pictures {
        write_pictures(folder, &training.history, &matrix, &source.classes)?;
    }
    if let Some(file) = &json_file {
        let report = serde_json::json!({
            "adapter": adapter,
            "settings": training.settings,
            "history": training.history,
            "accuracy": matrix.accuracy(),
        });
        file.write(format!("{report:#}\n").as_bytes())?;
    }
    Ok(matrix.accuracy())
}

fn settings(args: &Args, source: &Source, batch: usize) -> Settings {
    Settings {
        model: format!("{:?}", args.model),
        precision: args.precision.to_string(),
        batch,
        accumulate: args.accumulate,
        seed: args.seed,
        epochs: args.epochs,
        learning_rate: args.learning_rate,
        average: args.average,
        images: source.train.len(),
        side: source.format.side,
    }
}

/// Returns the images of the folder, or shapes.
fn source(args: &Args) -> Result<Source> {
    let side = args.side.map(|side| side as usize);
    let mut source = match &args.data {
        Some(folder) => sources::read(folder, side)?,
        None => {
            let count = args.limit.map_or(SHAPES, |limit| limit as usize);
            sources::generate(count, Format { channels: 1, side: side.unwrap_or(28) }, args.seed)
        }
    };
    if let (Some(limit), Some(_)) = (args.limit, &args.data) {
        sources::limit(&mut source, limit as usize);
    }
    Ok(source)
}

fn loader(args: &Args, source: &Source, batch: usize, device: &WgslDevice) -> Result<TrainLoader> {
    let config = LoaderConfig { workers: args.workers, ..LoaderConfig::new(batch) };
    let sampler = Shuffled { seed: args.seed };
    let (images, batcher) = (source.train.clone(), Images(source.format));
    let loader = if args.plain {
        Loader::new(images, batcher, device, config)
    } else {
        // Digits and letters must not be mirrored; photographs may.
        let mirrors = source.format.channels > 1;
        Loader::new(Augmented { images, format: source.format, mirrors }, batcher, device, config)
    };
    Ok(loader?.with_sampler(sampler)?)
}

/// Seeds the device, and returns an untrained network, or one with weights of a file.
fn network(args: &Args, source: &Source, device: &WgslDevice) -> Result<Network<B>> {
    B::seed(device, args.seed);
    let mut network = Network::new(args.model, source.format, source.classes.len(), device);
    if let Some(path) = &args.weights {
        let is_whole = weights::load(&mut network, path)?;
        let rest = if is_whole { "" } else { ", but for the last layer" };
        println!("weights of {}{rest}", path.display());
    }
    Ok(network)
}

/// Returns the batch size: that of the command line, of the run that is resumed, or the fastest.
fn batch_size(args: &Args, source: &Source, device: &WgslDevice) -> Result<usize> {
    match (args.batch, &args.checkpoints) {
        (BatchSize::Samples(batch), _) => return Ok(batch),
        (BatchSize::Auto, Some(folder)) if args.resume => {
            return Ok(Checkpoint::latest_value::<Settings>(folder, "settings")?.batch);
        }
        (BatchSize::Auto, _) => {}
    }
    let network = Network::new(args.model, source.format, source.classes.len(), device);
    let (trainer, mut updated) = (Trainer::new(args, network, 1000, device)?, None);
    let item = source.train.get(0).context("there are no images")?;
    let search = BatchSearch { max: source.train.len(), ..BatchSearch::default() };
    let sizes = search.find(device, |batch| {
        use burn::data::dataloader::batcher::Batcher;
        let batch = Images(source.format).batch(vec![item.clone(); batch], device);
        // Each step is the first: one may fail after it has returned. What is dropped is not computed.
        let mut next = trainer.clone();
        let mut sum = MeanGradients::new();
        next.add(batch, &mut sum);
        next.step(&mut sum);
        updated = Some(next);
    })?;
    drop(updated);
    print!("{sizes}");
    Ok(sizes.fastest)
}

/// Trains, and tests after each epoch. Returns the result of the last test.
fn train_epochs(
    args: &Args,
    source: &Source,
    training: &mut Training,
    saved: &mut Option<Run>,
    stop: &Stop,
    device: &WgslDevice,
) -> Result<ConfusionMatrix> {
    let loader = training.loader.clone();
    let mut step = saved.as_ref().map_or(0, Run::step);
    let (mut loss, mut reading) = (Mean::new(), None);
    let (mut matrix, mut stopped) = (None, false);
    while loader.position().epoch < u64::from(args.epochs) && !stopped {
        let epoch = loader.position().epoch + 1;
        let (start, waits) = (Instant::now(), waits_on_thread());
        let mut waited = Duration::ZERO;
        let mut sum = MeanGradients::new();
        let mut batches = loader.batches();
        loop {
            let asked = Instant::now();
            let Some(batch) = batches.next() else { break };
            waited += asked.elapsed();
            let batch = batch?;
            let [samples] = batch.labels.dims();
            loss.add(training.trainer.add(batch, &mut sum), samples);
            // The rest of an epoch is a step, too.
            let ends = loader.position().items == source.train.len();
            let wanted = args.accumulate as usize * training.settings.batch;
            if sum.samples() < wanted && !ends {
                continue;
            }
            training.trainer.step(&mut sum);
            step += 1;
            if step.is_multiple_of(REPORT_EVERY) {
                // What was asked for 50 steps ago is there now.
                let next = loss.read()?.map(|reading| (step, reading));
                training.add_loss(std::mem::replace(&mut reading, next))?;
            }
            let goes_on = match saved {
                Some(run) => run.end_step(training)?,
                None => !stop.is_requested(),
            };
            stopped = !goes_on;
            if stopped && !ends {
                training.add_loss(reading.take())?;
                let rest = loss.read()?.map(|reading| (step, reading));
                training.add_loss(rest)?;
                break;
            }
        }
        drop(batches);
        if loader.position().epoch < epoch {
            break;
        }
        let next = loss.read()?.map(|reading| (step, reading));
        training.add_loss(reading.take())?;
        training.add_loss(next)?;
        let seconds = start.elapsed().as_secs_f64();
        let share = waited.as_secs_f64() / seconds;
        let waits = waits_on_thread() - waits;
        let tested = test(source, training, device)?;
        println!(
            "epoch {epoch:>3}/{}   loss {:.4}   test accuracy {:6.2} %   {seconds:.2} s, {:.0} % \
             of them waiting for data, {waits} waits for the device",
            args.epochs,
            training.history.losses.last().map_or(f64::NAN, |&(_, loss)| loss),
            tested.accuracy() * 100.0,
            share * 100.0,
        );
        training.end_epoch(epoch, step, tested.accuracy(), seconds, share)?;
        if let Some(run) = saved {
            run.save(training, Some(tested.accuracy()))?;
        }
        matrix = Some(tested);
    }
    if let Some(run) = saved {
        run.finish()?;
    }
    match matrix {
        Some(matrix) if !stopped => Ok(matrix),
        _ => test(source, training, device),
    }
}

/// Classifies the test images.
fn test(source: &Source, training: &Training, device: &WgslDevice) -> Result<ConfusionMatrix> {
    let config = LoaderConfig::new(TEST_BATCH.min(source.test.len()));
    let loader: Loader<Wgsl, Labelled, Batch<Wgsl>> =
        Loader::new(source.test.clone(), Images(source.format), device, config)?;
    let model = training.trainer.model();
    let mut confusion = Confusion::new(source.classes.len(), device);
    for batch in loader.batches() {
        let Batch { images, labels } = batch?;
        confusion.add(model.forward(images), labels);
    }
    Ok(confusion.read()?.take()?)
}

fn write_pictures(
    folder: &Path,
    history: &History,
    matrix: &ConfusionMatrix,
    classes: &[String],
) -> Result<()> {
    let curves = pictures::curves(&history.losses, &history.accuracies)?;
    let confusion = pictures::confusion(matrix, classes)?;
    for (name, picture) in [("curves.svg", curves), ("confusion.svg", confusion)] {
        let path = folder.join(name);
        std::fs::write(&path, picture)
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("picture written to {}", path.display());
    }
    Ok(())
}
