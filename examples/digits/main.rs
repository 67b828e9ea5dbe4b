//! Trains a small CNN on handwritten digits with the `Wgsl` backend, on a GPU or, if there is none,
//! on the CPU.
//!
//! `cargo run --release --example digits -- --help` lists the options.

mod args;
mod batch;
mod output;
mod plot;
mod report;
mod train;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use burn::module::{AutodiffModule, Module};
use burn_wgsl::ProfileError;
use burn_wgsl::device::{ResolvedDevice, automatic, install_hint, set_quiet};
use burn_wgsl::parallel::{self, ParallelError, SharedRun, Worker, Workers};
use burn_wgsl::profiler::{By, Column};
use burn_wgsl::scaler::{GradScaler, GradScalerConfig};
use burn_wgsl::train::{BatchSize, RunConfig, Stop};
use burn_wgsl::{
    Precision, Wgsl, WgslDevice, autocast, current_precision, memory, product_path, profiler,
};
use digits::data::{Dataset, read_limited};
use digits::learner::{Learner, adam};
use digits::model::Model;
use digits::weights;

use args::Args;
use output::OutputFile;
use report::Run;
use train::B;

fn main() -> ExitCode {
    let start = Instant::now();
    // Hide the library's message that there is no GPU: `run` prints one with advice instead.
    let filter = env_logger::Env::default().default_filter_or("warn,burn_wgsl::device=error");
    env_logger::Builder::from_env(filter).init();
    set_quiet(true);
    let args = Args::from_command_line();
    // A missing device is an error in the command line, like an unknown selector: exit code 2.
    let workers = args.workers();
    if let Err(error) = workers.check() {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    let stop = match Stop::on_signals() {
        Ok(stop) => stop,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    match run(&args, workers, start, &stop) {
        Ok(()) => ExitCode::from(stop.exit_code()),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args, workers: Workers, start: Instant, stop: &Stop) -> Result<()> {
    let device = workers.devices()[0];
    let output_file = |option, path: &Option<_>| -> Result<Option<OutputFile>> {
        let path: Option<&Path> = path.as_deref();
        path.map(|path| OutputFile::new(option, path)).transpose()
    };
    let model_file = output_file("--save", &args.save)?;
    let json_file = output_file("--json", &args.json)?;
    let plot_file = output_file("--plot", &args.plot)?;
    let observed = Observed {
        profile: output_file("--profile", &args.profile)?,
        memory: output_file("--memory", &args.memory)?,
        peaks: None,
        checkpoints: args.checkpoints.clone(),
    };
    // An adapter that cannot be profiled is an error now, not after ten steps.
    let peaks = match observed.profile.as_ref().map(|_| profiler::peaks(&device)) {
        None | Some(Err(ProfileError::Cpu)) => None,
        Some(peaks) => Some(peaks.context("--profile")?),
    };
    let observed = Observed { peaks, ..observed };
    let dataset = match &args.data {
        Some(path) => Dataset::read(path)?,
        None => Dataset::built_in()?,
    };
    // Without the option, that of the environment.
    let of_environment = Some(current_precision(&device)).filter(|other| *other != Precision::F32);
    let precision = args.precision.or(of_environment);
    // No message if the command line or the environment selects the CPU.
    if matches!(device, WgslDevice::Auto) && automatic()?.no_usable_gpu {
        println!("no usable GPU found, so training runs on the CPU; {}", install_hint());
    }
    println!(
        "dataset: {} training images, {} test images",
        dataset.train.labels.len(),
        dataset.test.labels.len()
    );
    let program = |worker: &Worker| work(worker, precision, args, &dataset, start, &observed, stop);
    let (run, model) = train_on(workers, program)?;
    if let Some(file) = &model_file {
        file.write(&weights::to_bytes(model)?)?;
        println!("model saved to {}", file.path().display());
    }
    let on_cpu = matches!(device.resolve()?, ResolvedDevice::Cpu);
    let in_f32 = precision.unwrap_or_default() == Precision::F32;
    let mut cpu_run = None;
    if args.compare && on_cpu && in_f32 {
        println!("--compare has nothing to compare: this run already used the CPU, in f32");
    } else if args.compare && !run.history.interrupted {
        println!();
        let unobserved = Observed::default();
        let (cpu, precision) = (Workers::alone(WgslDevice::Cpu), Some(Precision::F32));
        // Both with the same batches.
        let args = Args { batch: BatchSize::Samples(run.batch), ..args.clone() };
        let (cpu, _) = train_on(cpu, |worker| {
            work(worker, precision, &args, &dataset, Instant::now(), &unobserved, stop)
        })?;
        println!("\n{}", report::table(&run, &cpu));
        cpu_run = Some(cpu);
    }
    if let Some(file) = &plot_file
        && !run.history.seconds.is_empty()
    {
        file.write(plot::svg(&run, cpu_run.as_ref())?.as_bytes())?;
        println!("plot written to {}", file.path().display());
    }
    if let Some(file) = &json_file {
        file.write(&report::json(args, &dataset, &run, cpu_run.as_ref()))?;
        println!("measurements written to {}", file.path().display());
    }
    Ok(())
}

/// Where to write what is observed of a device during a run, and what is saved of it.
#[derive(Default)]
struct Observed {
    profile: Option<OutputFile>,
    memory: Option<OutputFile>,
    /// The peak rates of the device, for a profile.
    peaks: Option<profiler::Peaks>,
    checkpoints: Option<PathBuf>,
}

/// Runs the program of each worker. Returns the result of the first.
fn train_on<T: Send>(workers: Workers, program: impl Fn(&Worker) -> Result<T> + Sync) -> Result<T> {
    let is_alone = workers.len() == 1;
    let trained = parallel::run(workers, program);
    let trained = trained.map_err(|error| match error {
        ParallelError::Failed { message, .. } if is_alone => anyhow::Error::msg(message),
        error => error.into(),
    })?;
    trained.into_iter().next().context("there is no worker")
}

/// The program of each worker: trains and tests a model. The seed determines all random numbers. `start` is the start
/// time for `History::first_step`. The first worker prints and saves.
fn work(
    worker: &Worker,
    precision: Option<Precision>,
    args: &Args,
    dataset: &Dataset,
    start: Instant,
    observed: &Observed,
    stop: &Stop,
) -> Result<(Run, Model<Wgsl>)> {
    burn_wgsl::reset_fallbacks();
    let device = worker.device();
    let mut adapter = device.describe()?;
    if worker.world() > 1 {
        adapter = format!("{} devices, the first {adapter}", worker.world());
    }
    let recording = observed
        .memory
        .as_ref()
        .map(|_| memory::record(&device).context("--memory"))
        .transpose()?;
    // Small gradients would be 0 in f16.
    let enabled = precision == Some(Precision::F16);
    let new_scaler = || GradScalerConfig { enabled, ..GradScalerConfig::default() }.init(&device);
    let learner =
        |model, scaler: &GradScaler| Learner::with_optimizer(model, scaler.wrap(adam()), &device);
    // Parameters, their gradients and the optimiser stay f32.
    let _autocast = precision.map(|precision| autocast(&device, precision));
    let batch = batch_size(
        args,
        observed,
        |scaler| batch::fastest(learner(Model::new(&device), scaler), scaler, dataset, &device),
        new_scaler,
    )?;
    let scaler = new_scaler();
    let model = new_model(args, precision, worker, &adapter)?;
    let settings = settings(args, batch, precision, dataset);
    let (epochs, balances, resumes) = (args.epochs as usize, args.balance, args.resume);
    let options = train::Options { epochs, settings, scaler, balances, resumes };
    let mut saved = SharedRun::new(worker, stop.clone());
    if let Some(folder) = &observed.checkpoints {
        let config = RunConfig { every: args.checkpoint_every, ..RunConfig::default() };
        saved = saved.saved_to(folder, config)?;
    }
    let mut profiling = Profiling::new(observed, &device);
    let learner = learner(model, &options.scaler);
    let (model, history) =
        train::train(learner, dataset, &options, saved, worker, start, || profiling.step())?;
    profiling.finish()?;
    if let (Some(file), Some(recording)) = (&observed.memory, recording) {
        file.write(recording.snapshot()?.to_html().as_bytes())?;
        println!("memory written to {}", file.path().display());
    }
    let run = Run {
        device: device.to_string(),
        adapter,
        precision,
        batch,
        history,
        fingerprint: weights::fingerprint(&model.valid()),
        fallbacks: burn_wgsl::fallbacks(),
    };
    if worker.is_first() {
        println!("{}", run.summary());
    }
    Ok((run, model.valid()))
}

/// Seeds the device, and creates the model, with the weights of a file if the command line names one.
fn new_model(
    args: &Args,
    precision: Option<Precision>,
    worker: &Worker,
    adapter: &str,
) -> Result<Model<B>> {
    let device = &worker.device();
    worker.seed::<B>(args.seed);
    let mut model = Model::<B>::new(device);
    if let Some(path) = &args.load {
        let bytes = read_limited(path)
            .with_context(|| format!("cannot read the model file {}", path.display()))?;
        model = weights::from_bytes(model, &path.display().to_string(), bytes, device)?;
    }
    model = worker.broadcast(model)?;
    if !worker.is_first() {
        return Ok(model);
    }
    println!("model: {} parameters, seed {}, on {adapter}", model.num_params(), args.seed);
    if let Some(precision) = precision.filter(|precision| *precision != Precision::F32) {
        println!("products in {precision}, {}", product_path(device, precision)?);
    }
    Ok(model)
}

/// Returns what a resumed run must have in common with this one.
fn settings(
    args: &Args,
    batch: usize,
    precision: Option<Precision>,
    dataset: &Dataset,
) -> train::Settings {
    train::Settings {
        batch,
        seed: args.seed,
        learning_rate: args.learning_rate,
        precision: precision.unwrap_or_default().to_string(),
        images: dataset.train.labels.len(),
    }
}

/// Returns the batch size: that of the command line, of the run that is resumed, or what `search` finds with a scaler
/// of its own.
fn batch_size(
    args: &Args,
    observed: &Observed,
    search: impl FnOnce(&GradScaler) -> Result<usize>,
    new_scaler: impl Fn() -> GradScaler,
) -> Result<usize> {
    match (args.batch, &observed.checkpoints) {
        (BatchSize::Samples(batch), _) => Ok(batch),
        (BatchSize::Auto, Some(folder)) if args.resume => batch::of_run(folder),
        (BatchSize::Auto, _) => search(&new_scaler()),
    }
}

/// The profile of some steps, if one is wanted.
struct Profiling<'a> {
    scheduled: Option<(&'a OutputFile, profiler::Scheduled)>,
    is_profiled: bool,
    peaks: Option<profiler::Peaks>,
}

impl<'a> Profiling<'a> {
    fn new(observed: &'a Observed, device: &WgslDevice) -> Self {
        let schedule =
            |file| (file, profiler::Scheduled::new(device, profiler::Schedule::default()));
        let scheduled = observed.profile.as_ref().map(schedule);
        Self { is_profiled: scheduled.is_none(), scheduled, peaks: observed.peaks }
    }

    /// Begins a step.
    fn step(&mut self) -> Result<()> {
        if let Some((file, scheduled)) = &mut self.scheduled
            && let Some(profile) = scheduled.step()?
        {
            self.is_profiled = true;
            show_profile(file, profile, self.peaks)?;
        }
        Ok(())
    }

    /// Ends the run, which may end with a profiled step.
    fn finish(mut self) -> Result<()> {
        if let Some((file, scheduled)) = self.scheduled.take()
            && let Some(profile) = scheduled.finish()?
        {
            self.is_profiled = true;
            show_profile(file, profile, self.peaks)?;
        }
        if !self.is_profiled {
            println!("the run had too few steps for --profile: it profiles the 11th to the 13th");
        }
        Ok(())
    }
}

/// Writes a profile to a file, and prints its tables.
fn show_profile(
    file: &OutputFile,
    profile: profiler::Profile,
    peaks: Option<profiler::Peaks>,
) -> Result<()> {
    let profile = match peaks {
        Some(peaks) => profile.with_peaks(peaks),
        None => profile,
    };
    let is_page = file.path().extension().is_some_and(|extension| extension == "html");
    let text = if is_page { profile.to_html() } else { profile.to_trace() };
    file.write(text.as_bytes())?;
    println!("\n{}", profile.table(By::Kernel, Column::Time));
    println!("{}", profile.table(By::Scope, Column::Time));
    println!("{}", profile.memory_table());
    println!("profile written to {}", file.path().display());
    Ok(())
}
