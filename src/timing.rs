//! The time of a piece of work, including the GPU's.

use std::fmt;
use std::hint::black_box;
use std::time::Duration;

use burn_backend::{Backend, ExecutionError};
use serde::Serialize;
use web_time::Instant;

use crate::backend::{Wgsl, compute};
use crate::device::WgslDevice;

/// The least time of a sample: work that is shorter is repeated.
const SAMPLE_TIME: Duration = Duration::from_millis(20);
/// Samples, if they end within the budget.
const SAMPLES: usize = 15;
/// No sample begins after this time, but for the first three.
const BUDGET: Duration = Duration::from_secs(3);
const MIN_SAMPLES: usize = 3;
/// The most runs of a sample.
const MAX_RUNS: usize = 4096;

/// Order statistics of a list of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Half of the samples are below it.
    pub median: f64,
    /// The 25th percentile.
    pub lower_quartile: f64,
    /// The 75th percentile.
    pub upper_quartile: f64,
    /// The least sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
}

impl Summary {
    /// Summarises samples in any order. Returns `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let [lower_quartile, median, upper_quartile] =
            [0.25, 0.5, 0.75].map(|fraction| quantile(&sorted, fraction));
        Some(Self { median, lower_quartile, upper_quartile, min, max })
    }
}

/// Returns a quantile, linearly interpolated between the two nearest samples. `fraction` is between
/// 0 and 1.
fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let position = fraction * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

/// The time of a run: see [`time`]. Displayed as `1.23 ms (1.20 to 1.31 in 15 samples of 8 runs)`.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// let device = WgslDevice::default();
/// let x = Tensor::<Wgsl, 2>::ones([64, 64], &device);
/// let timing = burn_wgsl::time(&device, || x.clone().matmul(x.clone()))?;
/// println!("{:.1} GFLOP/s", 2e-9 * 64f64.powi(3) / timing.seconds.median);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// The first run, which compiles kernels.
    pub first: Duration,
    /// Seconds of a run after the warm-up.
    pub seconds: Summary,
    /// The number of samples.
    pub samples: usize,
    /// Runs of a sample, whose mean it is.
    pub runs: usize,
}

/// Measures the time that a device and the host take for `work`: from the call until all of its results are computed.
///
/// The first run compiles kernels and is not counted. Then the work is repeated until a sample takes 20 ms, in up to 15
/// samples. The device is waited for after each sample, not after each run, so that the host prepares a run while the
/// GPU computes the one before, as in a training loop. Results that are dropped unread within `work` may not be
/// computed: return them.
///
/// # Errors
///
/// Returns an error if there is no such device, if a computation fails, and in a browser, where the host cannot wait.
///
/// ```no_run
/// use burn::tensor::Tensor;
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// let device = WgslDevice::default();
/// let [a, b] = [(); 2].map(|()| Tensor::<Wgsl, 2>::ones([1024, 1024], &device));
/// println!("{}", burn_wgsl::time(&device, || a.clone().matmul(b.clone()))?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn time<R>(device: &WgslDevice, mut work: impl FnMut() -> R) -> Result<Timing, ExecutionError> {
    let mut sample = |runs: usize| {
        Wgsl::sync(device)?;
        let start = Instant::now();
        for _ in 0..runs {
            let output = black_box(work());
            // What is dropped before it is computed is not computed.
            compute(device).map_err(|error| failed(&error))?;
            drop(output);
        }
        Wgsl::sync(device)?;
        Ok(start.elapsed())
    };
    device.resolve().map_err(|error| failed(&error))?;
    let first = sample(1)?;
    // The second run may compile, too: an optimizer has a state only after its first step.
    sample(1)?;
    let mut runs = 1;
    loop {
        let elapsed = sample(runs)?;
        if elapsed >= SAMPLE_TIME || runs == MAX_RUNS {
            break;
        }
        // Clamped, because short measurements are inaccurate.
        let factor = SAMPLE_TIME.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        runs = ((runs as f64 * factor.clamp(1.5, 10.0)).ceil() as usize).min(MAX_RUNS);
    }
    let start = Instant::now();
    let mut samples = Vec::with_capacity(SAMPLES);
    while samples.len() < MIN_SAMPLES || samples.len() < SAMPLES && start.elapsed() < BUDGET {
        samples.push(sample(runs)?.as_secs_f64() / runs as f64);
    }
    let seconds = Summary::of(&samples).ok_or_else(|| failed(&"there are no samples"))?;
    Ok(Timing { first, seconds, samples: samples.len(), runs })
}

fn failed(error: &dyn fmt::Display) -> ExecutionError {
    ExecutionError::WithContext { reason: error.to_string() }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { median, lower_quartile, upper_quartile, .. } = self.seconds;
        let (factor, unit) = match median {
            seconds if seconds >= 1.0 => (1.0, "s"),
            seconds if seconds >= 1e-3 => (1e3, "ms"),
            _ => (1e6, "us"),
        };
        let [median, lower, upper] =
            [median, lower_quartile, upper_quartile].map(|seconds| seconds * factor);
        let (samples, runs) = (self.samples, self.runs);
        write!(
            f,
            "{median:.2} {unit} ({lower:.2} to {upper:.2} in {samples} samples of {runs} runs)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_interpolated() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            summary,
            Summary { median: 2.5, lower_quartile: 1.75, upper_quartile: 3.25, min: 1.0, max: 4.0 }
        );
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!((one.median, one.lower_quartile, one.max), (7.0, 7.0, 7.0));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn an_outlier_does_not_move_the_median() {
        assert_eq!(Summary::of(&[1.0, 1.0, 1.0, 1.0, 900.0]).unwrap().median, 1.0);
    }

    #[test]
    fn times_have_a_unit() {
        let seconds = Summary::of(&[0.002, 0.001, 0.003]).unwrap();
        let timing = Timing { first: Duration::ZERO, seconds, samples: 3, runs: 8 };
        assert_eq!(timing.to_string(), "2.00 ms (1.50 to 2.50 in 3 samples of 8 runs)");
    }
}
