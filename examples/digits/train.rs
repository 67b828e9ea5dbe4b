//! The training loop and what it measures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, bail};
use burn::module::AutodiffModule;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Int, Tensor, TensorData};
use indicatif::{ProgressBar, ProgressStyle};

use crate::data::{Digits, Split};
use crate::model::{Model, SIDE};

/// Test images per forward pass: bounds the memory that a large data file takes.
const TEST_BATCH: usize = 1024;

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
    mut model: Model<B>,
    digits: &Digits,
    options: Options,
    device: &B::Device,
    start: Instant,
    stop: &AtomicBool,
) -> Result<(Model<B>, History)> {
    let test = OnDevice::<B::InnerBackend>::new(&digits.test, device);
    let train = OnDevice::<B>::new(&digits.train, device);
    let loss_of = CrossEntropyLossConfig::new().init(device);
    let mut optimizer = AdamConfig::new().with_epsilon(1e-8).init();
    let mut shuffle = Shuffle(options.seed);
    let mut history = History::default();
    let bar = progress(options.epochs * train.count.div_ceil(options.batch));

    'run: for epoch in 1..=options.epochs {
        bar.set_message(format!("epoch {epoch}/{}", options.epochs));
        let clock = Instant::now();
        let order = ints(shuffle.order(train.count), device);
        let mut total = Tensor::<B::InnerBackend, 1>::zeros([1], device);
        for from in (0..train.count).step_by(options.batch) {
            if stop.load(Ordering::Relaxed) {
                history.interrupted = true;
                break 'run;
            }
            let to = train.count.min(from + options.batch);
            let (images, labels) = train.pick(order.clone().slice_dim(0, from..to));
            let loss = loss_of.forward(model.forward(images), labels);
            total = total + loss.clone().inner() * (to - from) as f64;
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(options.learning_rate, model, gradients);
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
            bail!("the training loss became {loss} in epoch {epoch}: try a smaller --learning-rate");
        }
        let accuracy = test.accuracy(&model.valid());
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
        _ => test.accuracy(&model.valid()),
    };
    Ok((model, history))
}

/// A part of the data, uploaded once.
struct OnDevice<B: Backend> {
    images: Tensor<B, 4>,
    labels: Tensor<B, 1, Int>,
    count: usize,
}

impl<B: Backend> OnDevice<B> {
    fn new(split: &Split, device: &B::Device) -> Self {
        let count = split.labels.len();
        let pixels = TensorData::new(split.pixels.clone(), [count, 1, SIDE, SIDE]);
        Self { images: Tensor::from_data(pixels, device), labels: ints(split.labels.clone(), device), count }
    }

    fn pick(&self, indices: Tensor<B, 1, Int>) -> (Tensor<B, 4>, Tensor<B, 1, Int>) {
        (self.images.clone().select(0, indices.clone()), self.labels.clone().select(0, indices))
    }

    fn accuracy(&self, model: &Model<B>) -> f64 {
        let correct = (0..self.count).step_by(TEST_BATCH).map(|from| {
            let range = from..self.count.min(from + TEST_BATCH);
            let images = self.images.clone().slice_dim(0, range.clone());
            model.correct(images, self.labels.clone().slice_dim(0, range))
        });
        let correct = correct.reduce(|sum, part| sum + part);
        correct.map_or(0.0, |sum| sum.into_scalar().elem::<f64>()) / self.count as f64
    }
}

fn ints<B: Backend>(values: Vec<i32>, device: &B::Device) -> Tensor<B, 1, Int> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

/// A bar on a terminal; nothing where there is none.
fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:32}] {pos}/{len} batches, {eta} left");
    ProgressBar::new(steps as u64).with_style(style.expect("the template is a constant").progress_chars("=> "))
}

/// The order of the training images: a generator of its own (splitmix64), so that it is the same for every device.
struct Shuffle(u64);

impl Shuffle {
    fn order(&mut self, count: usize) -> Vec<i32> {
        let mut order: Vec<i32> = (0..count as i32).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }

    /// A number from 0 to `limit - 1`: the high half of a product, which is even enough for limits this small.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Shuffle;

    #[test]
    fn a_shuffle_keeps_every_image_and_follows_its_seed() {
        let first = Shuffle(1).order(100);
        assert_eq!(first, Shuffle(1).order(100));
        assert_ne!(first, Shuffle(2).order(100));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<i32>>());
        assert!(Shuffle(1).order(0).is_empty());
    }
}
