//! The mean of the gradients of workers, round by round.

use std::time::{Duration, Instant};

use burn::nn::{Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_wgsl::parallel::Worker;
use burn_wgsl::{Autodiff, Wgsl};

type B = Autodiff<Wgsl>;

/// Numbers of a row of the parameter that has the gradients.
const WIDTH: usize = 1000;
/// Rounds that are not counted: they compile kernels.
const WARM_UP: usize = 2;

/// Returns the times of the rounds of a worker.
pub fn measure(
    worker: &Worker,
    numbers: usize,
    rounds: usize,
) -> Result<Vec<Duration>, Box<dyn std::error::Error>> {
    let device = worker.device();
    let config = LinearConfig::new(numbers / WIDTH, WIDTH).with_bias(false);
    let layer: Linear<B> = worker.broadcast(config.init(&device))?;
    let gradient = Tensor::<Wgsl, 2>::ones([numbers / WIDTH, WIDTH], &device) * 0.5;
    let mut times = Vec::with_capacity(rounds);
    for round in 0..WARM_UP + rounds {
        let mut gradients = GradientsParams::new();
        gradients.register(layer.weight.id, gradient.clone() * (worker.rank() + 1) as f64);
        Wgsl::sync(&device)?;
        // All begin together.
        worker.sum(&[])?;
        let start = Instant::now();
        let mut mean = worker.mean::<B, _>(gradients, &layer, 1)?;
        let mean: Option<Tensor<Wgsl, 2>> = mean.remove(layer.weight.id);
        burn_wgsl::compute(&device)?;
        Wgsl::sync(&device)?;
        if round >= WARM_UP {
            times.push(start.elapsed());
        }
        let expected = 0.25 * (worker.world() + 1) as f32;
        let found = mean.map(|mean| mean.max().into_scalar());
        if found != Some(expected) {
            return Err(format!("the mean is {found:?} instead of {expected}").into());
        }
    }
    Ok(times)
}
