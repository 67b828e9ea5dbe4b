//! The training loop and what it measures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, bail};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Tensor};
use indicatif::{ProgressBar, ProgressStyle};

use digits::data::Digits;
use digits::dice::Dice;
use digits::learner::Learner;
use digits::model::Model;
use digits::set::{Set, ints};

/// The choices that shape a run.
#[derive(Clone, Copy)]
pub struct Options {
    pub epochs: usize,
    pub batch: usize,
    pub seed: u64,
    pub learning_rate: f64,
}

/// What a run measured. The lists have one entry for each finished epoch.
#[derive(Default)]
pub struct History {
    pub train_loss: Vec<f64>,
    /// Share of the test images recognised, 0 to 1.
    pub test_accuracies: Vec<f64>,
    /// Training time, from the epoch's first step until its loss is read; testing is not in it.
    pub seconds: Vec<f64>,
    /// From the given start until the device had finished the first training step.
    pub first_step: Option<f64>,
    /// The model's accuracy at the end, also when the run was cut short.
    pub test_accuracy: f64,
    pub interrupted: bool,
}

/// Trains the model, printing a line per epoch. `start` is where the clock of the first step began; `stop`, once set,
/// ends the run after the step that is under way.
///
/// The device is read once for each epoch (its loss), once for each test and once after the very first step. In between,
/// steps are only queued, so a GPU is never kept waiting.
pub fn train<B: AutodiffBackend>(
    model: Model<B>,
    digits: &Digits,
    options: Options,
    device: &B::Device,
    start: Instant,
    stop: &AtomicBool,
) -> Result<(Model<B>, History)> {
    let test = Set::<B::InnerBackend>::new(&digits.test, device);
    let train = Set::<B>::new(&digits.train, device);
    let mut learner = Learner::new(model, device);
    let mut dice = Dice(options.seed);
    let mut history = History::default();
    let bar = progress(options.epochs * train.count.div_ceil(options.batch));

    'run: for epoch in 1..=options.epochs {
        bar.set_message(format!("epoch {epoch}/{}", options.epochs));
        let clock = Instant::now();
        let order = ints(dice.order(train.count), device);
        let mut total = Tensor::<B::InnerBackend, 1>::zeros([1], device);
        for from in (0..train.count).step_by(options.batch) {
            if stop.load(Ordering::Relaxed) {
                history.interrupted = true;
                break 'run;
            }
            let to = train.count.min(from + options.batch);
            let (images, labels) = train.pick(order.clone().slice_dim(0, from..to));
            let loss;
            (learner, loss) = learner.step(images, labels, options.learning_rate);
            total = total + loss * (to - from) as f64;
            if history.first_step.is_none() {
                B::sync(device)?;
                history.first_step = Some(start.elapsed().as_secs_f64());
            }
            bar.inc(1);
        }
        let loss = total.into_scalar().elem::<f64>() / train.count as f64;
        let seconds = clock.elapsed().as_secs_f64();
        if !loss.is_finite() {
            bar.finish_and_clear();
            bail!(
                "the training loss became {loss} in epoch {epoch}: try a smaller --learning-rate"
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
    // After whole epochs the last test is the answer; otherwise the weights have moved on, or were never tested.
    history.test_accuracy = match history.test_accuracies.last() {
        Some(accuracy) if !history.interrupted => *accuracy,
        _ => accuracy(&test, &learner.valid()),
    };
    Ok((learner.model, history))
}

/// The share of the images that the model recognises.
fn accuracy<B: Backend>(set: &Set<B>, model: &Model<B>) -> f64 {
    set.correct(model).map_or(0.0, |sum| sum.into_scalar().elem::<f64>()) / set.count as f64
}

/// A bar on a terminal; nothing where there is none.
fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:32}] {pos}/{len} batches, {eta} left");
    ProgressBar::new(steps as u64)
        .with_style(style.expect("the template is a constant").progress_chars("=> "))
}
