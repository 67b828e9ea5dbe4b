//! How much of the exchange of gradients a backward pass hides, on a network that takes some time for each bucket:
//! `cargo bench --bench overlap --features train`.
//!
//! `OVERLAP_DEVICE` selects the device [default: auto], `OVERLAP_DELAY` the milliseconds for each bucket [default: 5],
//! `OVERLAP_ROWS` the samples of a batch [default: 128].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use burn::nn::{Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::parallel::{self, Gathered, ParallelError, Pending, Transport, Worker};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
use parking_lot::Mutex;

type B = Autodiff<Wgsl>;

/// Layers, of a bucket each.
const LAYERS: usize = 16;
const WIDTH: usize = 1024;
const ROUNDS: usize = 9;

/// A network to another worker with the same gradients, which sends one bucket at a time.
struct Slow {
    delay: Duration,
    free_at: Mutex<Instant>,
    step: AtomicU64,
}

impl Transport for Slow {
    fn rank(&self) -> usize {
        0
    }

    fn world(&self) -> usize {
        2
    }

    fn gather(&self, _: String, bytes: Vec<u8>) -> Result<Gathered, ParallelError> {
        Ok(Arc::new(vec![bytes.clone(), bytes]))
    }

    fn broadcast(&self, _: String, bytes: Option<Vec<u8>>) -> Result<Arc<Vec<u8>>, ParallelError> {
        Ok(Arc::new(bytes.unwrap_or_default()))
    }

    fn start_sum(
        &self,
        _: String,
        _: f32,
        numbers: Vec<f32>,
    ) -> Result<Pending<Arc<Vec<f32>>>, ParallelError> {
        let mut free_at = self.free_at.lock();
        *free_at = Instant::now().max(*free_at) + self.delay;
        let arrives = *free_at;
        Ok(Box::new(move || {
            std::thread::sleep(arrives.saturating_duration_since(Instant::now()));
            Ok(Arc::new(numbers))
        }))
    }

    fn step(&self) -> u64 {
        self.step.load(Ordering::Relaxed)
    }

    fn end_step(&self) {
        self.step.fetch_add(1, Ordering::Relaxed);
    }

    fn fail(&self, error: ParallelError) -> ParallelError {
        error
    }

    fn failure(&self) -> Option<ParallelError> {
        None
    }
}

/// What a round does.
#[derive(Debug, Clone, Copy)]
enum Round {
    /// The gradients alone.
    Computes,
    /// The exchange of gradients that are there.
    Exchanges,
    /// Both, one after the other.
    After,
    /// Both, at the same time.
    Watched,
}

fn main() {
    let variable = |name| std::env::var(name).ok();
    let number = |name, default: u64| match variable(name) {
        Some(text) => text.parse().unwrap_or_else(|error| panic!("{name}: {error}")),
        None => default,
    };
    let device = variable("OVERLAP_DEVICE").unwrap_or_else(|| "auto".to_owned());
    let device: WgslDevice =
        device.parse().unwrap_or_else(|error| panic!("OVERLAP_DEVICE: {error}"));
    let delay = Duration::from_millis(number("OVERLAP_DELAY", 5));
    let rows = number("OVERLAP_ROWS", 128) as usize;
    println!("{}", device.describe().unwrap_or_else(|error| panic!("{error}")));
    println!("{LAYERS} buckets, {delay:?} for each, {rows} rows\n");
    let (free_at, step) = (Mutex::new(Instant::now()), AtomicU64::new(0));
    let network = Arc::new(Slow { delay, free_at, step });
    parallel::run_on(network, device, |worker| measure(worker, rows))
        .unwrap_or_else(|error| panic!("{error}"));
}

fn measure(worker: &Worker, rows: usize) -> Result<(), Box<dyn std::error::Error>> {
    let device = worker.device();
    let layer = || LinearConfig::new(WIDTH, WIDTH).with_bias(false).init(&device);
    let layers: Vec<Linear<B>> = (0..LAYERS).map(|_| layer()).collect();
    let x = Tensor::<B, 2>::random([rows, WIDTH], Distribution::Default, &device);
    let rounds = [Round::Computes, Round::Exchanges, Round::After, Round::Watched];
    let mut times = [const { Vec::new() }; 4];
    for round in 0..ROUNDS + 1 {
        // Interleaved.
        for (times, kind) in times.iter_mut().zip(rounds) {
            let time = step(worker, &layers, &x, kind)?;
            if round > 0 {
                times.push(time.as_secs_f64() * 1e3);
            }
        }
    }
    let medians = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let [computes, exchanges, ..] = medians;
    for (round, median) in rounds.iter().zip(medians) {
        let ratio = median / computes.max(exchanges);
        println!("{:<10} {median:>8.1} ms   {ratio:.2} of the longer", format!("{round:?}"));
    }
    Ok(())
}

/// Returns the time of a round.
fn step(
    worker: &Worker,
    layers: &Vec<Linear<B>>,
    x: &Tensor<B, 2>,
    round: Round,
) -> Result<Duration, Box<dyn std::error::Error>> {
    let device = worker.device();
    let samples = x.dims()[0];
    let gradients = |layers: &[Linear<B>]| {
        layers.iter().fold(x.clone(), |x, layer| layer.forward(x)).powi_scalar(2).mean().backward()
    };
    let ready = GradientsParams::from_grads(gradients(layers), layers);
    burn_wgsl::compute(&device)?;
    Wgsl::sync(&device)?;
    let start = Instant::now();
    let taken = match round {
        Round::Computes => GradientsParams::from_grads(gradients(layers), layers),
        Round::Exchanges => worker.mean(ready, layers, samples)?,
        Round::After => {
            let own = GradientsParams::from_grads(gradients(layers), layers);
            worker.mean(own, layers, samples)?
        }
        Round::Watched => {
            let watched = worker.watch(layers, samples)?;
            let own = GradientsParams::from_grads(gradients(&watched), layers);
            worker.mean(own, layers, samples)?
        }
    };
    burn_wgsl::compute(&device)?;
    Wgsl::sync(&device)?;
    drop(taken);
    Ok(start.elapsed())
}
