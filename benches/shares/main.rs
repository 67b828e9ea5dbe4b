//! How batches are divided between a device and one of half its speed: `cargo bench --bench shares --features train`.
//!
//! `SHARES_DEVICE` selects the device [default: auto], `SHARES_BATCH` the samples of a batch [default: 3072]. The
//! second worker waits in each step for as long as it has computed.

use std::time::{Duration, Instant};

use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::parallel::{self, ParallelError, Worker, Workers};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

type B = Autodiff<Wgsl>;

const LAYERS: usize = 4;
const WIDTH: usize = 512;
/// Steps of a round, and of the first, which compiles kernels.
const STEPS: usize = 20;
/// Rounds, after each of which the batch is divided anew.
const ROUNDS: usize = 4;

/// A worker's part of a batch, and the median time of a step, in each round.
type Rounds = Vec<(usize, Duration)>;

fn main() {
    let variable = |name| std::env::var(name).ok();
    let device = variable("SHARES_DEVICE").unwrap_or_else(|| "auto".to_owned());
    let device: WgslDevice =
        device.parse().unwrap_or_else(|error| panic!("SHARES_DEVICE: {error}"));
    let batch = variable("SHARES_BATCH").unwrap_or_else(|| "3072".to_owned());
    let batch: usize = batch.parse().unwrap_or_else(|error| panic!("SHARES_BATCH: {error}"));
    println!("{}", device.describe().unwrap_or_else(|error| panic!("{error}")));
    let run = |workers: Workers| -> Vec<Rounds> {
        parallel::run(workers, |worker| measure(worker, batch))
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let alone = run(Workers::alone(device)).remove(0)[ROUNDS - 1].1;
    let both = run(Workers::threads([device; 2]).oversubscribed(true));
    // The speeds are 1 and 1/2.
    let ideal = alone.as_secs_f64() / 1.5;
    println!(
        "one device alone: {:.1} ms; ideal: {:.1} ms\n",
        1e3 * alone.as_secs_f64(),
        ideal * 1e3
    );
    for ((first, time), (second, _)) in both[0].iter().zip(&both[1]) {
        let (time, ratio) = (time.as_secs_f64() * 1e3, time.as_secs_f64() / ideal);
        println!("{first:>5} : {second:<5} {time:>8.1} ms   {ratio:.2} of the ideal");
    }
}

/// Trains with a worker's part of batches. Returns its part and the median time of a step in each round.
fn measure(worker: &Worker, batch: usize) -> Result<Rounds, ParallelError> {
    let device = worker.device();
    let layer = || LinearConfig::new(WIDTH, WIDTH).init(&device);
    let layers: Vec<Linear<B>> = (0..LAYERS).map(|_| layer()).collect();
    let mut layers = worker.broadcast::<B, _>(layers)?;
    let mut optimizer = SgdConfig::new().init();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let samples = worker.batch_size(batch)?;
        let x = Tensor::<B, 2>::random([samples, WIDTH], Distribution::Default, &device);
        let mut times = Vec::new();
        for _ in 0..STEPS {
            let start = Instant::now();
            let y = layers.iter().fold(x.clone(), |x, layer| layer.forward(x).tanh());
            let gradients = y.powi_scalar(2).mean().backward();
            let gradients = GradientsParams::from_grads(gradients, &layers);
            // A device that fails shows in the gradients.
            let _ = burn_wgsl::compute(&device);
            let _ = Wgsl::sync(&device);
            if worker.rank() == 1 {
                std::thread::sleep(start.elapsed());
            }
            let gradients = worker.mean::<B, _>(gradients, &layers, samples)?;
            layers = optimizer.step(1e-3, layers, gradients);
            times.push(start.elapsed());
        }
        times.sort();
        rounds.push((samples, times[times.len() / 2]));
        worker.rebalance()?;
    }
    Ok(rounds)
}
