//! The training loop and its measurements, of one worker or several.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Int, Tensor};
use burn_wgsl::parallel::{ParallelError, SharedRun, Worker};
use burn_wgsl::scaler::GradScaler;
use burn_wgsl::train::{CheckpointError, Parts, Saved};
use burn_wgsl::{Autodiff, Wgsl, scope};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use digits::data::{Dataset, Samples};
use digits::learner::Learner;
use digits::model::{Model, SIDE};
use digits::rng::Rng;
use digits::tensors::{SampleTensors, int_tensor};

/// The backend of the runs.
pub type B = Autodiff<Wgsl>;

/// The hyperparameters of a run.
pub struct Options {
    pub epochs: usize,
    pub settings: Settings,
    /// Scales the loss, for an optimiser that it wraps.
    pub scaler: GradScaler,
    /// Divides batches by the speed of the workers, after each epoch.
    pub balances: bool,
    /// Whether to continue from the newest checkpoint.
    pub resumes: bool,
}

/// What a resumed run must have in common with the run that it continues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub batch: usize,
    pub seed: u64,
    pub learning_rate: f64,
    /// The type of products.
    pub precision: String,
    /// Training images.
    pub images: usize,
}

/// The measurements of a run. The lists have one entry for each completed epoch.
#[derive(Default, Serialize, Deserialize)]
pub struct History {
    /// Mean loss over the training images.
    pub train_loss: Vec<f64>,
    /// Fraction of the test images classified correctly, 0 to 1.
    pub test_accuracies: Vec<f64>,
    /// Training time in seconds, from the first step of the epoch until its loss is read back.
    /// Excludes testing.
    pub seconds: Vec<f64>,
    /// Seconds from the start time until the device has finished the first training step.
    #[serde(skip)]
    pub first_step: Option<f64>,
    /// Accuracy of the final model, also of an interrupted run.
    #[serde(skip)]
    pub test_accuracy: f64,
    /// The steps that the scaler skipped, if it is enabled.
    #[serde(skip)]
    pub skipped_steps: Option<u32>,
    /// Whether a signal ended the run.
    #[serde(skip)]
    pub interrupted: bool,
}

/// Where a run is.
#[derive(Default, Serialize, Deserialize)]
struct Progress {
    /// Completed epochs.
    epochs: usize,
    /// Images of the current epoch that are behind.
    images: usize,
    /// Those of this worker. A run that is resumed goes on with those of the first.
    own_images: usize,
    /// The state of the generator that draws the order of the epoch.
    rng: u64,
    /// Seconds that the epoch took so far.
    seconds: f64,
}

/// A run in training: what a checkpoint holds.
struct Training<'a, O> {
    learner: Learner<B, O>,
    settings: &'a Settings,
    progress: Progress,
    /// The losses of the epoch so far, each times the images of its batch.
    loss_sum: Tensor<Wgsl, 1>,
    history: History,
}

impl<O: Optimizer<Model<B>, B>> Saved for Training<'_, O> {
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        parts.setting("settings", self.settings)?;
        parts.module("model", &mut self.learner.model)?;
        parts.optimizer("optimizer", &mut self.learner.optimizer)?;
        parts.tensor("loss-sum", &mut self.loss_sum)?;
        parts.value("progress", &mut self.progress)?;
        parts.value("history", &mut self.history)
    }
}

impl<O: Optimizer<Model<B>, B>> Training<'_, O> {
    /// Trains on a worker's part of a batch of images with their labels, which may have none.
    ///
    /// Takes `self` by value, so that each weight has a single owner and can be updated in place.
    ///
    /// # Errors
    ///
    /// Returns an error if a worker failed.
    fn step(
        mut self,
        batch: (Tensor<B, 4>, Tensor<B, 1, Int>),
        scaler: &GradScaler,
        worker: &Worker,
    ) -> Result<Self, ParallelError> {
        let (images, labels) = batch;
        let [samples] = labels.dims();
        let watched = match worker.world() {
            1 => None,
            _ => Some(worker.watch(&self.learner.model, samples)?),
        };
        let mut gradients = GradientsParams::new();
        if samples > 0 {
            let loss = {
                let _scope = scope("forward");
                let model = watched.as_ref().unwrap_or(&self.learner.model);
                self.learner.loss_of(model, images, labels)
            };
            self.loss_sum = self.loss_sum + loss.clone().inner() * samples as f64;
            self.progress.own_images += samples;
            let _scope = scope("backward");
            gradients = self.learner.gradients(scaler.scale(loss));
        }
        // The weights have one owner again.
        drop(watched);
        let gradients = worker.mean(gradients, &self.learner.model, samples)?;
        let _scope = scope("optimizer");
        self.learner = self.learner.update(gradients, self.settings.learning_rate);
        Ok(self)
    }

    /// Reads the loss of an epoch, and tests the model. Returns the mean loss, the accuracy, and the seconds from
    /// `start` until the device has computed the loss.
    ///
    /// # Errors
    ///
    /// Returns an error if the loss is infinite or NaN.
    fn end_epoch(
        &mut self,
        start: Instant,
        rng: u64,
        test: &Test,
        worker: &Worker,
    ) -> Result<(f64, f64, f64)> {
        let epochs = self.progress.epochs + 1;
        let loss_sum = self.loss_sum.clone().into_scalar().elem::<f64>();
        let sums = worker.sum(&[loss_sum, self.progress.own_images as f64])?;
        let loss = sums[0] / sums[1];
        let seconds = start.elapsed().as_secs_f64();
        if !loss.is_finite() {
            bail!(
                "the training loss became {loss} in epoch {epochs}; try a smaller --learning-rate"
            );
        }
        // Optimizers of unlike devices round differently.
        self.learner.model = worker.keep_equal(self.learner.model.clone())?;
        let accuracy = test.accuracy(&self.learner.valid(), worker)?;
        self.history.train_loss.push(loss);
        self.history.test_accuracies.push(accuracy);
        self.history.seconds.push(seconds);
        self.progress = Progress { epochs, rng, ..Progress::default() };
        self.loss_sum = self.loss_sum.zeros_like();
        Ok((loss, accuracy, seconds))
    }
}

/// A worker's part of the test images.
struct Test {
    own: SampleTensors<Wgsl>,
    /// Those of all workers.
    count: usize,
}

impl Test {
    fn new(samples: &Samples, worker: &Worker) -> Self {
        let count = samples.labels.len();
        let own = worker.range(count);
        let pixels = SIDE * SIDE;
        let own = Samples {
            pixels: samples.pixels[own.start * pixels..own.end * pixels].to_vec(),
            labels: samples.labels[own].to_vec(),
        };
        Self { own: SampleTensors::new(&own, &worker.device()), count }
    }

    /// Returns the fraction of the images of all workers that the model classifies correctly.
    fn accuracy(&self, model: &Model<Wgsl>, worker: &Worker) -> Result<f64> {
        let correct = self.own.count_correct(model);
        let correct = correct.map_or(0.0, |count| count.into_scalar().elem::<f64>());
        Ok(worker.sum(&[correct])?[0] / self.count as f64)
    }
}

/// Trains a model and prints one line per epoch. [`History::first_step`] counts from `start`.
/// `before_step` runs before each step. All workers run this, each with its part of each batch.
///
/// The host waits for the device once per epoch for the loss, once per test, and after the first
/// step. All other steps are only queued, so the GPU does not idle.
///
/// # Errors
///
/// Returns an error if the loss becomes infinite or NaN, if the device or `before_step` fails, or if a checkpoint
/// cannot be saved or does not fit.
pub fn train<O: Optimizer<Model<B>, B>>(
    learner: Learner<B, O>,
    dataset: &Dataset,
    options: &Options,
    mut run: SharedRun<'_>,
    worker: &Worker,
    start: Instant,
    mut before_step: impl FnMut() -> Result<()>,
) -> Result<(Model<B>, History)> {
    let device = &worker.device();
    let test = Test::new(&dataset.test, worker);
    let train = SampleTensors::<B>::new(&dataset.train, device);
    let Settings { batch, seed, .. } = options.settings;
    let mut training = Training {
        learner,
        settings: &options.settings,
        progress: Progress { rng: seed, ..Progress::default() },
        loss_sum: Tensor::zeros([1], device),
        history: History::default(),
    };
    if run.begin(options.resumes, &mut training)? && worker.is_first() {
        println!("resumed after {} steps", run.step());
    }
    let bar = progress_bar(options.epochs * train.count.div_ceil(batch), worker);
    bar.set_position(run.step());

    'training: while training.progress.epochs < options.epochs {
        let epoch = training.progress.epochs + 1;
        bar.set_message(format!("epoch {epoch}/{}", options.epochs));
        // Before now, if the epoch is resumed.
        let before = Duration::from_secs_f64(training.progress.seconds);
        let now = Instant::now();
        let epoch_start = now.checked_sub(before).unwrap_or(now);
        let mut rng = Rng(training.progress.rng);
        let order = int_tensor(rng.permutation(train.count), device);
        while training.progress.images < train.count {
            before_step()?;
            let first = training.progress.images;
            let end = train.count.min(first + batch);
            let own = worker.range(end - first);
            let batch =
                train.select(order.clone().slice_dim(0, first + own.start..first + own.end));
            training = training.step(batch, &options.scaler, worker)?;
            if training.history.first_step.is_none() {
                B::sync(device)?;
                training.history.first_step = Some(start.elapsed().as_secs_f64());
            }
            bar.inc(1);
            training.progress.images = end;
            training.progress.seconds = epoch_start.elapsed().as_secs_f64();
            if !run.end_step(&mut training)? {
                training.history.interrupted = true;
                break 'training;
            }
        }
        let ended = training.end_epoch(epoch_start, rng.0, &test, worker);
        let (loss, accuracy, seconds) = ended.inspect_err(|_| bar.finish_and_clear())?;
        let epochs = options.epochs;
        let (line, percent) =
            (format!("epoch {epoch:>3}/{epochs}   loss {loss:.4}"), accuracy * 100.0);
        if worker.is_first() {
            bar.suspend(|| println!("{line}   test accuracy {percent:6.2} %   {seconds:.3} s"));
        }
        run.save(&mut training, Some(accuracy))?;
        if options.balances {
            worker.rebalance()?;
        }
    }
    bar.finish_and_clear();
    run.finish()?;
    let Training { learner, mut history, .. } = training;
    // Test again if the weights changed after the last test, or if there was no test.
    history.test_accuracy = match history.test_accuracies.last() {
        Some(accuracy) if !history.interrupted => *accuracy,
        _ => test.accuracy(&learner.valid(), worker)?,
    };
    let scaler = &options.scaler;
    history.skipped_steps = scaler.is_enabled().then(|| scaler.state().skipped_steps);
    Ok((learner.model, history))
}

/// Creates a progress bar, which is visible only on a terminal, and of the first worker.
fn progress_bar(steps: usize, worker: &Worker) -> ProgressBar {
    if !worker.is_first() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} [{bar:32}] {pos}/{len} batches, {eta} left");
    ProgressBar::new(steps as u64)
        .with_style(style.expect("the template is valid").progress_chars("=> "))
}
