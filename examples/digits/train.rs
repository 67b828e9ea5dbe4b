//! The training loop and its measurements.

use std::time::Instant;

use anyhow::{Result, bail};
use burn::optim::Optimizer;
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor};
use burn_wgsl::scaler::GradScaler;
use burn_wgsl::train::Stop;
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, scope};
use indicatif::{ProgressBar, ProgressStyle};

use digits::data::Dataset;
use digits::learner::Learner;
use digits::model::Model;
use digits::rng::Rng;
use digits::tensors::{SampleTensors, int_tensor};

/// The backend of the runs.
pub type B = Autodiff<Wgsl>;

/// The hyperparameters of a run.
pub struct Options {
    pub epochs: usize,
    pub batch: usize,
    pub seed: u64,
    pub learning_rate: f64,
    /// Scales the loss, for an optimiser that it wraps.
    pub scaler: GradScaler,
    /// Ends the run after the current step.
    pub stop: Stop,
}

/// The measurements of a run. The lists have one entry for each completed epoch.
#[derive(Default)]
pub struct History {
    /// Mean loss over the training images.
    pub train_loss: Vec<f64>,
    /// Fraction of the test images classified correctly, 0 to 1.
    pub test_accuracies: Vec<f64>,
    /// Training time in seconds, from the first step of the epoch until its loss is read back.
    /// Excludes testing.
    pub seconds: Vec<f64>,
    /// Seconds from the start time until the device has finished the first training step.
    pub first_step: Option<f64>,
    /// Accuracy of the final model, also of an interrupted run.
    pub test_accuracy: f64,
    /// The steps that the scaler skipped, if it is enabled.
    pub skipped_steps: Option<u32>,
    /// Whether a signal ended the run.
    pub interrupted: bool,
}

/// Trains a model and prints one line per epoch. [`History::first_step`] counts from `start`.
/// `before_step` runs before each step.
///
/// The host waits for the device once per epoch for the loss, once per test, and after the first
/// step. All other steps are only queued, so the GPU does not idle.
///
/// # Errors
///
/// Returns an error if the loss becomes infinite or NaN, or if the device or `before_step` fails.
pub fn train<O: Optimizer<Model<B>, B>>(
    mut learner: Learner<B, O>,
    dataset: &Dataset,
    options: Options,
    device: &WgslDevice,
    start: Instant,
    mut before_step: impl FnMut() -> Result<()>,
) -> Result<(Model<B>, History)> {
    let test = SampleTensors::<Wgsl>::new(&dataset.test, device);
    let train = SampleTensors::<B>::new(&dataset.train, device);
    let mut rng = Rng(options.seed);
    let mut history = History::default();
    let bar = progress_bar(options.epochs * train.count.div_ceil(options.batch));

    'training: for epoch in 1..=options.epochs {
        bar.set_message(format!("epoch {epoch}/{}", options.epochs));
        let epoch_start = Instant::now();
        let order = int_tensor(rng.permutation(train.count), device);
        let mut loss_sum = Tensor::<Wgsl, 1>::zeros([1], device);
        for batch_start in (0..train.count).step_by(options.batch) {
            if options.stop.is_requested() {
                history.interrupted = true;
                break 'training;
            }
            before_step()?;
            let batch_end = train.count.min(batch_start + options.batch);
            let indices = order.clone().slice_dim(0, batch_start..batch_end);
            let (images, labels) = train.select(indices);
            let loss = {
                let _scope = scope("forward");
                learner.loss(images, labels)
            };
            loss_sum = loss_sum + loss.clone().inner() * (batch_end - batch_start) as f64;
            let gradients = {
                let _scope = scope("backward");
                learner.gradients(options.scaler.scale(loss))
            };
            {
                let _scope = scope("optimizer");
                learner = learner.update(gradients, options.learning_rate);
            }
            if history.first_step.is_none() {
                B::sync(device)?;
                history.first_step = Some(start.elapsed().as_secs_f64());
            }
            bar.inc(1);
        }
        let loss = loss_sum.into_scalar().elem::<f64>() / train.count as f64;
        let seconds = epoch_start.elapsed().as_secs_f64();
        if !loss.is_finite() {
            bar.finish_and_clear();
            bail!(
                "the training loss became {loss} in epoch {epoch}; try a smaller --learning-rate"
            );
        }
        let accuracy = accuracy(&test, &learner.valid());
        bar.suspend(|| {
            println!(
                "epoch {epoch:>3}/{}   loss {loss:.4}   test accuracy {:6.2} %   {seconds:.3} s",
                options.epochs,
                accuracy * 100.0
            );
        });
        history.train_loss.push(loss);
        history.test_accuracies.push(accuracy);
        history.seconds.push(seconds);
    }
    bar.finish_and_clear();
    // Test again if the weights changed after the last test, or if there was no test.
    history.test_accuracy = match history.test_accuracies.last() {
        Some(accuracy) if !history.interrupted => *accuracy,
        _ => accuracy(&test, &learner.valid()),
    };
    let scaler = &options.scaler;
    history.skipped_steps = scaler.is_enabled().then(|| scaler.state().skipped_steps);
    Ok((learner.model, history))
}

/// Returns the fraction of the images that the model classifies correctly.
fn accuracy<B: Backend>(samples: &SampleTensors<B>, model: &Model<B>) -> f64 {
    let correct = samples.count_correct(model);
    correct.map_or(0.0, |count| count.into_scalar().elem::<f64>()) / samples.count as f64
}

/// Creates a progress bar, which is visible only on a terminal.
fn progress_bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:32}] {pos}/{len} batches, {eta} left");
    ProgressBar::new(steps as u64)
        .with_style(style.expect("the template is valid").progress_chars("=> "))
}
