//! The batch that trains fastest in the memory of a device.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;

use burn::tensor::backend::Backend;
use thiserror::Error;
use web_time::Instant;

use crate::backend::Wgsl;
use crate::device::WgslDevice;
use crate::memory;
use crate::runtime::panic_message;

/// Finds the batch size with the most samples per second: it doubles the batch until a step fails or exceeds the limit,
/// and then bisects.
///
/// ```no_run
/// use burn_wgsl::WgslDevice;
/// use burn_wgsl::train::BatchSearch;
///
/// # fn step(batch: usize) {}
/// let sizes = BatchSearch::default().find(&WgslDevice::default(), |batch| step(batch))?;
/// println!("{sizes}");
/// println!("train with {}", sizes.fastest);
/// # Ok::<(), burn_wgsl::train::NoBatchFits>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSearch {
    /// The batch that is tried first [default: 1].
    pub first: usize,
    /// The largest batch that is tried [default: 65,536].
    pub max: usize,
    /// The most memory that a step may take beside what is in use before, in bytes [default: none]. The limit
    /// of [`memory::set_limit`] holds in any case. The CPU device does not measure memory.
    pub limit: Option<u64>,
    /// Steps that are timed for each batch, after one that is not [default: 2].
    pub steps: usize,
    /// The largest batch is found up to this part of it [default: 8, an eighth].
    pub resolution: usize,
}

impl Default for BatchSearch {
    fn default() -> Self {
        Self { first: 1, max: 1 << 16, limit: None, steps: 2, resolution: 8 }
    }
}

/// The batch size of a command line: a number of samples, or `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchSize {
    /// That of a [`BatchSearch`].
    Auto,
    /// At least 1.
    Samples(usize),
}

/// A text is no batch size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is no batch size; it is a number of at least 1, or `auto`")]
pub struct InvalidBatchSize {
    /// The text.
    pub text: String,
}

impl FromStr for BatchSize {
    type Err = InvalidBatchSize;

    fn from_str(text: &str) -> Result<Self, InvalidBatchSize> {
        match (text, text.parse()) {
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(samples @ 1..)) => Ok(Self::Samples(samples)),
            _ => Err(InvalidBatchSize { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for BatchSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Samples(samples) => samples.fmt(f),
        }
    }
}

/// A batch size that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The batch size.
    pub batch: usize,
    /// The most memory that a step took, in bytes; 0 on the CPU device.
    pub peak: u64,
    /// Samples per second, or why the step failed.
    pub speed: Result<f64, String>,
}

/// The batch sizes that were tried: see [`BatchSearch::find`]. Displayed as a table.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchSizes {
    /// In the order of the trials.
    pub trials: Vec<Trial>,
    /// The batch size with the most samples per second.
    pub fastest: usize,
    /// The largest batch size that fits.
    pub largest: usize,
}

/// No batch size fits.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a step with a batch of {batch} fails: {reason}")]
pub struct NoBatchFits {
    /// The smallest batch that was tried.
    pub batch: usize,
    /// Why it fails.
    pub reason: String,
}

impl BatchSearch {
    /// Tries batch sizes. `step` runs a whole training step, from the upload of its batch to the optimizer; what it
    /// changes remains changed. A step that panics for any reason, such as one without enough memory, does not fit;
    /// it may also fail after it has returned. So each step begins with a clone of the same model, and keeps the result
    /// until the next step: what is dropped is not computed.
    ///
    /// # Errors
    ///
    /// Returns an error if the first batch does not fit.
    ///
    /// # Panics
    ///
    /// Panics if the first batch is 0 or above the largest, or if the number of steps is 0.
    pub fn find(
        &self,
        device: &WgslDevice,
        mut step: impl FnMut(usize),
    ) -> Result<BatchSizes, NoBatchFits> {
        assert!(
            (1..=self.max).contains(&self.first) && self.steps > 0,
            "the first batch is {} and the largest {}, with {} steps; 1 <= first <= max and steps > 0 must hold",
            self.first,
            self.max,
            self.steps
        );
        let mut trials = Vec::new();
        let mut fits = |batch| {
            let trial = self.measure(device, batch, &mut step);
            let result = trial.speed.clone();
            trials.push(trial);
            result
        };
        let mut largest = self.first;
        fits(largest).map_err(|reason| NoBatchFits { batch: largest, reason })?;
        let mut too_large = None;
        while largest < self.max && too_large.is_none() {
            let next = largest.saturating_mul(2).min(self.max);
            match fits(next) {
                Ok(_) => largest = next,
                Err(_) => too_large = Some(next),
            }
        }
        let mut too_large = too_large.unwrap_or(largest);
        while too_large - largest > (largest / self.resolution.max(1)).max(1) {
            let middle = largest + (too_large - largest) / 2;
            match fits(middle) {
                Ok(_) => largest = middle,
                Err(_) => too_large = middle,
            }
        }
        let speed = |trial: &Trial| trial.speed.clone().unwrap_or(0.0);
        let fastest = trials.iter().max_by(|a, b| speed(a).total_cmp(&speed(b)));
        let fastest = fastest.map_or(largest, |trial| trial.batch);
        Ok(BatchSizes { trials, fastest, largest })
    }

    /// Measures steps of a batch size. Afterwards, the device works, and has no memory that the steps left unused.
    fn measure(&self, device: &WgslDevice, batch: usize, step: &mut impl FnMut(usize)) -> Trial {
        let work = || {
            catch_unwind(AssertUnwindSafe(|| {
                step(batch);
                Wgsl::sync(device).unwrap_or_else(|error| panic!("{error}"));
                let start = Instant::now();
                (0..self.steps).for_each(|_| step(batch));
                Wgsl::sync(device).unwrap_or_else(|error| panic!("{error}"));
                (batch * self.steps) as f64 / start.elapsed().as_secs_f64()
            }))
            .map_err(|panic| panic_message(&*panic))
        };
        let (mut speed, peak) = match memory::measure(device, work) {
            Ok((speed, measured)) => (speed, measured.peak),
            // Work that is pending after a failed step fails, too.
            Err(error) => (Err(error.to_string()), 0),
        };
        if let Some(limit) = self.limit.filter(|limit| peak > *limit && speed.is_ok()) {
            speed = Err(format!("the step takes {peak} bytes, and the limit is {limit}"));
        }
        if speed.is_err() {
            // An error that was not met yet must not be that of the next trial.
            let _ = Wgsl::sync(device);
        }
        let _ = memory::trim(device, 0);
        Trial { batch, peak, speed }
    }
}

impl fmt::Display for BatchSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>8} {:>14} {:>14}", "batch", "samples/s", "memory")?;
        for Trial { batch, peak, speed } in &self.trials {
            let memory = format!("{:.1} MiB", *peak as f64 / f64::from(1 << 20));
            match speed {
                Ok(speed) => {
                    let mark = if *batch == self.fastest { "  fastest" } else { "" };
                    writeln!(f, "{batch:>8} {speed:>14.1} {memory:>14}{mark}")?;
                }
                Err(reason) => {
                    let reason = reason.lines().next().unwrap_or_default();
                    writeln!(f, "{batch:>8} {:>14} {memory:>14}  {reason}", "does not fit")?;
                }
            }
        }
        Ok(())
    }
}
