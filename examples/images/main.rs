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
use burn::data::dataset::transform::PartialDataset;
use burn::module::Module;
use burn_wgsl::parallel::{self, Part, Rest, SharedRun, Worker};
use burn_wgsl::train::{
    BatchSearch, BatchSize, Checkpoint, CheckpointError, Confusion, ConfusionMatrix, Loader,
    LoaderConfig, Mean, MeanGradients, Parts, Readback, RunConfig, Sampler, Saved, Shuffled, Stop,
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
/// Steps between two comparisons of the workers' parameters.
const COMPARE_EVERY: u64 = 200;
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

/// A worker's run in training: what a checkpoint holds, and where its measurements are logged.
struct Training<'a> {
    worker: &'a Worker,
    trainer: Trainer,
    loader: Arc<TrainLoader>,
    /// The worker's part of each batch.
    part: Part<Shuffled>,
    settings: Settings,
    history: History,
    /// That of the first worker.
    log: Option<Log>,
}

impl Training<'_> {
    /// Takes the mean loss of the steps before a step, of all workers.
    fn add_loss(&mut self, reading: Option<Reading>) -> Result<()> {
        let Some(Reading { step, samples, loss }) = reading else { return Ok(()) };
        let loss = self.worker.mean_of(loss.take()?, samples)?;
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

impl Saved for Training<'_> {
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        parts.setting("settings", &self.settings)?;
        self.trainer.parts(parts)?;
        // That of all workers, so that another number of them can go on.
        let (part, loader) = (&self.part, &self.loader);
        parts.loader_of("position", loader, |own| part.to_all(own), |all| part.of_all(all))?;
        parts.value("history", &mut self.history)
    }
}

/// The mean loss of a worker's samples before a step, on its way to the host.
struct Reading {
    step: u64,
    samples: usize,
    loss: Readback<f64>,
}

impl Reading {
    fn start(step: u64, loss: &mut Mean) -> Result<Option<Self>> {
        let samples = loss.samples();
        Ok(loss.read()?.map(|loss| Self { step, samples, loss }))
    }
}

/// What remains of a run: its last test, its measurements, and the network.
struct Trained {
    matrix: ConfusionMatrix,
    settings: Settings,
    history: History,
    network: Network<Wgsl>,
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
    let workers = args.run_on();
    let adapters: Result<Vec<String>, _> =
        workers.devices().iter().map(|device| device.describe()).collect();
    let adapter = adapters?.join(" + ");
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
    let trained = parallel::run(workers, |worker| work(args, &source, worker, &adapter, stop))?;
    let trained = trained.into_iter().next().context("there is no worker")?;
    let Trained { matrix, settings, history, network } = trained;
    print!("\n{matrix}");
    println!("accuracy {:.2} % on {adapter}", matrix.accuracy() * 100.0);
    if let Some(file) = &weights_file {
        file.write(&weights::to_bytes(&network)?)?;
        println!("weights saved to {}", file.path().display());
    }
    if let Some(folder) = &args.pictures {
        write_pictures(folder, &history, &matrix, &source.classes)?;
    }
    if let Some(file) = &json_file {
        let report = serde_json::json!({
            "adapter": adapter,
            "settings": settings,
            "history": history,
            "accuracy": matrix.accuracy(),
        });
        file.write(format!("{report:#}\n").as_bytes())?;
    }
    Ok(matrix.accuracy())
}

/// The program of each worker: trains the network with its part of each batch. The first one prints, logs and saves.
fn work(
    args: &Args,
    source: &Source,
    worker: &Worker,
    adapter: &str,
    stop: &Stop,
) -> Result<Trained> {
    let device = worker.device();
    let _precision = autocast(&device, args.precision);
    let batch = batch_size(args, source, worker)?;
    let part = worker.part(Shuffled { seed: args.seed }, batch, Rest::Uneven)?;
    let per_step = batch * args.accumulate as usize;
    let steps = source.train.len().div_ceil(per_step) * args.epochs as usize;
    let mut training = Training {
        worker,
        trainer: Trainer::new(args, network(args, source, worker)?, steps, &device)?,
        loader: Arc::new(loader(args, source, part.clone(), worker.batch_size(batch)?, &device)?),
        part,
        settings: settings(args, source, batch),
        history: History::default(),
        log: None,
    };
    let parameters = training.trainer.model().num_params();
    if worker.is_first() {
        let (model, precision) = (args.model, args.precision);
        println!("{model:?} with {parameters} parameters in {precision} on {adapter}");
    }
    let run = begin(args, worker, &mut training, stop)?;
    if let (Some(folder), true) = (&args.log, worker.is_first()) {
        training.log = Some(Log::open(folder, run.step())?);
    }
    let (loss, reading, stopped) = (Mean::new(), None, false);
    let mut progress = Progress { args, run, stopped, loss, reading };
    let matrix = train_epochs(source, &mut training, &mut progress)?;
    let Training { trainer, settings, history, .. } = training;
    Ok(Trained { matrix, settings, history, network: trainer.model() })
}

/// Returns the run, which is resumed if the command line says so.
fn begin<'a>(
    args: &Args,
    worker: &'a Worker,
    training: &mut Training<'_>,
    stop: &Stop,
) -> Result<SharedRun<'a>> {
    let mut run = SharedRun::new(worker, stop.clone());
    if let Some(folder) = &args.checkpoints {
        let config = RunConfig { every: args.checkpoint_every, ..RunConfig::default() };
        run = run.saved_to(folder, config)?;
    }
    if run.begin(args.resume, training)? && worker.is_first() {
        println!("resumed after {} steps", run.step());
    }
    Ok(run)
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

fn loader(
    args: &Args,
    source: &Source,
    sampler: Part<Shuffled>,
    batch: usize,
    device: &WgslDevice,
) -> Result<TrainLoader> {
    let config = LoaderConfig { workers: args.workers, ..LoaderConfig::new(batch) };
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

/// Seeds the device, and returns the first worker's untrained network, or one with weights of a file.
fn network(args: &Args, source: &Source, worker: &Worker) -> Result<Network<B>> {
    let classes = source.classes.len();
    worker.seed::<B>(args.seed);
    let mut network = Network::new(args.model, source.format, classes, &worker.device());
    if let (Some(path), true) = (&args.weights, worker.is_first()) {
        let is_whole = weights::load(&mut network, path)?;
        let rest = if is_whole { "" } else { ", but for the last layer" };
        println!("weights of {}{rest}", path.display());
    }
    Ok(worker.broadcast(network)?)
}

/// Returns the batch size of all workers: that of the command line, of the run that is resumed, or the fastest.
fn batch_size(args: &Args, source: &Source, worker: &Worker) -> Result<usize> {
    let device = &worker.device();
    match (args.batch, &args.checkpoints) {
        (BatchSize::Samples(batch), _) => return Ok(batch),
        (BatchSize::Auto, Some(folder)) if args.resume => {
            return Ok(Checkpoint::latest_value::<Settings>(folder, "settings")?.batch);
        }
        (BatchSize::Auto, _) => {}
    }
    ensure!(worker.world() == 1, "--batch auto is for one device; give the batch of all");
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
        let _loss = next.add(batch, &mut sum, None);
        next.update(sum.take());
        updated = Some(next);
    })?;
    drop(updated);
    print!("{sizes}");
    Ok(sizes.fastest)
}

/// Where a worker is in its run.
struct Progress<'a> {
    args: &'a Args,
    run: SharedRun<'a>,
    stopped: bool,
    loss: Mean,
    reading: Option<Reading>,
}

impl Progress<'_> {
    /// Trains for an epoch, or for the rest of one. Returns how long the steps waited for data.
    fn train_epoch(&mut self, training: &mut Training<'_>, items: usize) -> Result<Duration> {
        let (loader, worker) = (training.loader.clone(), training.worker);
        let wanted = self.args.accumulate as usize * loader.position().batch_size;
        let mut waited = Duration::ZERO;
        let mut sum = MeanGradients::new();
        let mut batches = loader.batches();
        loop {
            let asked = Instant::now();
            let Some(batch) = batches.next() else { return Ok(waited) };
            waited += asked.elapsed();
            let batch = batch?;
            let [samples] = batch.labels.dims();
            let watching = (self.args.accumulate == 1).then_some(worker);
            self.loss.add(training.trainer.add(batch, &mut sum, watching)?, samples);
            // The rest of an epoch is a step, too.
            let ends = loader.position().items == items;
            if sum.samples() < wanted && !ends {
                continue;
            }
            training.trainer.step(worker, &mut sum)?;
            // Of this step.
            let step = self.run.step() + 1;
            if step.is_multiple_of(COMPARE_EVERY) {
                training.trainer.keep_equal(worker)?;
            }
            if step.is_multiple_of(REPORT_EVERY) {
                // The reading that began 50 steps ago has arrived.
                let next = Reading::start(step, &mut self.loss)?;
                training.add_loss(std::mem::replace(&mut self.reading, next))?;
            }
            self.stopped = !self.run.end_step(training)?;
            if self.stopped && !ends {
                return Ok(waited);
            }
        }
    }

    /// Takes the losses that are not read yet.
    fn take_losses(&mut self, training: &mut Training<'_>) -> Result<()> {
        let rest = Reading::start(self.run.step(), &mut self.loss)?;
        training.add_loss(self.reading.take())?;
        training.add_loss(rest)
    }
}

/// Trains, and tests after each epoch. Returns the result of the last test.
fn train_epochs(
    source: &Source,
    training: &mut Training<'_>,
    progress: &mut Progress<'_>,
) -> Result<ConfusionMatrix> {
    let (loader, epochs) = (training.loader.clone(), progress.args.epochs);
    let own = loader.position().batch_size;
    let mut matrix = None;
    while loader.position().epoch < u64::from(epochs) && !progress.stopped {
        let epoch = loader.position().epoch + 1;
        let items = training.part.epoch(source.train.len(), own, epoch - 1).len();
        let (start, waits) = (Instant::now(), waits_on_thread());
        let waited = progress.train_epoch(training, items)?;
        progress.take_losses(training)?;
        if loader.position().epoch < epoch {
            break;
        }
        let seconds = start.elapsed().as_secs_f64();
        let share = waited.as_secs_f64() / seconds;
        let waits = waits_on_thread() - waits;
        let tested = test(source, training)?;
        if training.worker.is_first() {
            println!(
                "epoch {epoch:>3}/{epochs}   loss {:.4}   test accuracy {:6.2} %   {seconds:.2} s, \
                 {:.0} % of them waiting for data, {waits} waits for the device",
                training.history.losses.last().map_or(f64::NAN, |&(_, loss)| loss),
                tested.accuracy() * 100.0,
                share * 100.0,
            );
        }
        let step = progress.run.step();
        training.end_epoch(epoch, step, tested.accuracy(), seconds, share)?;
        progress.run.save(training, Some(tested.accuracy()))?;
        matrix = Some(tested);
    }
    progress.run.finish()?;
    match matrix {
        Some(matrix) if !progress.stopped => Ok(matrix),
        _ => test(source, training),
    }
}

/// Classifies the test images, of which each worker has a part.
fn test(source: &Source, training: &Training<'_>) -> Result<ConfusionMatrix> {
    let (worker, classes) = (training.worker, source.classes.len());
    let own = worker.range(source.test.len());
    // Running statistics differ, and so may parameters on unlike devices: that of the first is tested, and saved.
    let model = worker.broadcast(training.trainer.model())?;
    let mut counts = vec![0.0; classes * classes];
    if !own.is_empty() {
        let images = PartialDataset::new(source.test.clone(), own.start, own.end);
        let config = LoaderConfig::new(TEST_BATCH.min(own.len()));
        let loader: Loader<Wgsl, Labelled, Batch<Wgsl>> =
            Loader::new(images, Images(source.format), &worker.device(), config)?;
        let mut confusion = Confusion::new(classes, &worker.device());
        for batch in loader.batches() {
            let Batch { images, labels } = batch?;
            confusion.add(model.forward(images), labels);
        }
        counts = confusion.read()?.take()?.counts().iter().map(|&count| count as f64).collect();
    }
    let counts = worker.sum(&counts)?.into_iter().map(|count| count as u64).collect();
    Ok(ConfusionMatrix::from_counts(counts))
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
