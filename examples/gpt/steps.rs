//! The training steps of a run, which checkpoints save.

use std::time::Instant;

use anyhow::{Result, bail};
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor};
use burn_wgsl::train::{
    BatchSearch, BatchSize, Checkpoint, CheckpointError, Parts, Run, RunConfig, Saved, Stop,
};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice};
use digits::rng::Rng;
use gpt::corpus::Corpus;
use gpt::train::Trainer;
use serde::{Deserialize, Serialize};

use crate::args::Args;

type B = Autodiff<Wgsl>;

/// How often the loss is read back and printed, in steps.
const REPORT_EVERY: u32 = 100;
/// The largest batch that is tried.
const MAX_BATCH: usize = 1024;

/// What a resumed run must have in common with the run that it continues.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Settings {
    precision: String,
    batch: usize,
    context: u32,
    width: u32,
    heads: u32,
    layers: u32,
    seed: u64,
    learning_rate: f64,
    characters: usize,
}

/// A run in training.
struct Training<'a> {
    settings: Settings,
    trainer: &'a mut Trainer,
    /// Draws the excerpts.
    rng: Rng,
    /// The losses since the last report, `[1]` each.
    losses: Vec<Tensor<Wgsl, 1>>,
    device: WgslDevice,
}

impl Saved for Training<'_> {
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        parts.setting("settings", &self.settings)?;
        self.trainer.parts(parts)?;
        parts.value("excerpts", &mut self.rng.0)?;
        // In one readback.
        let mut losses: Vec<f32> = match self.losses.is_empty() {
            true => Vec::new(),
            false => Tensor::cat(std::mem::take(&mut self.losses), 0).into_data().iter().collect(),
        };
        parts.value("losses", &mut losses)?;
        self.losses =
            losses.iter().map(|loss| Tensor::from_floats([*loss], &self.device)).collect();
        Ok(())
    }
}

/// Runs the training steps, unless a signal ends them. Returns the tokens per second.
///
/// # Errors
///
/// Returns an error if the loss becomes infinite or NaN, if the device fails, or if a checkpoint cannot be saved or
/// does not fit.
pub fn train(
    args: &Args,
    corpus: &Corpus,
    batch: usize,
    stop: &Stop,
    (device, precision): (WgslDevice, Precision),
    trainer: &mut Trainer,
) -> Result<f64> {
    let [text, _] = corpus.split();
    let size = [batch, args.context as usize];
    let settings = Settings {
        precision: precision.to_string(),
        batch,
        context: args.context,
        width: args.width,
        heads: args.heads,
        layers: args.layers,
        seed: args.seed,
        learning_rate: args.learning_rate,
        characters: corpus.len(),
    };
    let rng = Rng(args.seed);
    let mut training = Training { settings, trainer, rng, losses: Vec::new(), device };
    let mut first = 1;
    let mut run = None;
    if let Some(folder) = &args.checkpoints {
        let config = RunConfig { every: args.checkpoint_every, ..RunConfig::default() };
        let folder = folder.join(precision.to_string());
        let mut opened = Run::open(folder, &[device], config)?.with_stop(stop.clone());
        // Of several runs, a signal may have ended one, and the next did not start.
        let resumes = args.resume && (args.precision.len() == 1 || !opened.is_new()?);
        if let Some(found) = opened.begin(resumes, &mut training)? {
            println!("resumed after {} steps", found.step);
            first = u32::try_from(found.step)?.saturating_add(1);
        }
        run = Some(opened);
    }
    // The first steps compile kernels.
    let first_timed =
        (first - 1).saturating_add((args.steps.saturating_sub(first - 1) / 2).min(20));
    let mut last = first - 1;
    let mut start = Instant::now();
    for step in first..=args.steps {
        let excerpts = corpus.excerpts::<B>(text.clone(), size, &mut training.rng, &device);
        training.losses.push(training.trainer.step(excerpts, args.learning_rate));
        last = step;
        if step == first_timed {
            B::sync(&device)?;
            start = Instant::now();
        }
        if step.is_multiple_of(REPORT_EVERY) || step == args.steps {
            let mean = Tensor::cat(std::mem::take(&mut training.losses), 0).mean();
            let loss = mean.into_scalar().elem::<f64>();
            println!("step {step:>5}/{}   loss {loss:.4}", args.steps);
            if !loss.is_finite() {
                bail!("the loss became {loss}; try a smaller --learning-rate");
            }
        }
        let goes_on = match &mut run {
            Some(run) => run.end_step(&mut training)?,
            None => !stop.is_requested(),
        };
        if !goes_on {
            break;
        }
    }
    B::sync(&device)?;
    let timed = last.saturating_sub(first_timed) as usize * size.iter().product::<usize>();
    let speed = timed as f64 / start.elapsed().as_secs_f64();
    if let Some(run) = &mut run {
        run.save(&mut training, None)?;
        run.finish()?;
    }
    Ok(speed)
}

/// Returns the batch size of a run: that of the command line, of the run that is resumed, or the fastest.
///
/// # Errors
///
/// Returns an error if there is no checkpoint to resume, or if a batch of one excerpt does not fit.
pub fn batch_size(
    args: &Args,
    corpus: &Corpus,
    (device, precision): (WgslDevice, Precision),
    new_trainer: impl Fn() -> Trainer,
) -> Result<usize> {
    match (args.batch, &args.checkpoints) {
        (BatchSize::Samples(batch), _) => return Ok(batch),
        (BatchSize::Auto, Some(folder)) if args.resume => {
            let folder = folder.join(precision.to_string());
            return Ok(Checkpoint::latest_value::<Settings>(folder, "settings")?.batch);
        }
        (BatchSize::Auto, _) => {}
    }
    let [text, _] = corpus.split();
    let mut rng = Rng(args.seed);
    let search = BatchSearch { max: MAX_BATCH, ..BatchSearch::default() };
    let (trainer, mut updated) = (new_trainer(), None);
    let sizes = search.find(&device, |batch| {
        let size = [batch, args.context as usize];
        let excerpts = corpus.excerpts::<B>(text.clone(), size, &mut rng, &device);
        // Each step is the first: one may fail after it has returned. What is dropped is not computed.
        let mut next = trainer.clone();
        next.step(excerpts, args.learning_rate);
        updated = Some(next);
    })?;
    drop(updated);
    print!("{sizes}");
    Ok(sizes.fastest)
}
