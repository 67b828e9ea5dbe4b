//! What slows a training loop, from measurement.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use burn::tensor::backend::{Backend, ExecutionError};
use web_time::Instant;

use crate::backend::{Wgsl, fallbacks};
use crate::device::{ResolvedDevice, WgslDevice};
use crate::kernels::matmul;
use crate::memory;
use crate::runtime::{Event, Observation, Observer, Origin, Runtime, waits_on_thread};

/// The share of the time that steps may wait for data without advice.
const DATA: f64 = 0.1;
/// The steps between two waits for the device.
const STEPS_PER_WAIT: f64 = 10.0;
/// The launches of a step that may be small.
const LAUNCHES: f64 = 64.0;
/// The mean operations of launches that are not small: about what a GPU does while the host records a launch.
const WORK: f64 = 2e7;
/// The share of the operations that products of single elements may do.
const ODD: f64 = 0.2;
/// The share of the device's memory that may be in use at the peak.
const MEMORY: f64 = 0.9;

/// Measures a training loop, and says what slows it.
///
/// Begin after some steps, since the first compile kernels. Measuring takes a step some microseconds per launch.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::train::Advisor;
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// let device = WgslDevice::default();
/// let mut advisor = Advisor::begin(&device)?;
/// for _ in 0..20 {
///     // What gets the next batch:
///     let x = advisor.data(|| Tensor::<Wgsl, 2>::ones([64, 64], &device));
///     let loss = x.clone().matmul(x).mean();
///     println!("{}", loss.into_scalar()); // a wait in each step
///     advisor.end_step();
/// }
/// println!("{}", advisor.finish()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Advisor {
    device: WgslDevice,
    /// On a GPU.
    observed: Option<Observed>,
    began: Instant,
    data: Duration,
    steps: u64,
    waits: u64,
    fallbacks: BTreeMap<String, u64>,
}

impl fmt::Debug for Advisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advisor").field("steps", &self.steps).finish_non_exhaustive()
    }
}

/// An observed GPU.
struct Observed {
    counts: Arc<Counts>,
    /// The size of its memory, if it is known.
    memory: Option<u64>,
    _observation: Observation,
}

/// What the device was asked for.
#[derive(Default)]
struct Counts {
    launches: AtomicU64,
    work: AtomicU64,
    /// The operations of products that read single elements.
    odd_products: AtomicU64,
}

impl Observer for Counts {
    fn event(&self, _: Origin, event: Event<'_>) {
        let Event::Dispatch { kernel, work } = event else { return };
        let order = Ordering::Relaxed;
        self.launches.fetch_add(1, order);
        self.work.fetch_add(work, order);
        if matmul::reads_vec4(kernel) == Some(false) {
            self.odd_products.fetch_add(work, order);
        }
    }
}

impl Advisor {
    /// Begins to measure, when the device has done all work so far.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such device, or if a computation fails.
    pub fn begin(device: &WgslDevice) -> Result<Self, ExecutionError> {
        Wgsl::sync(device)?;
        let failed =
            |error: &dyn fmt::Display| ExecutionError::WithContext { reason: error.to_string() };
        let observed = match device.resolve().map_err(|error| failed(&error))? {
            ResolvedDevice::Cpu => None,
            ResolvedDevice::Adapter(index) => {
                let runtime = Runtime::of(index).map_err(|error| failed(&error))?;
                let counts = Arc::new(Counts::default());
                Some(Observed {
                    memory: runtime.info().memory,
                    _observation: runtime.observe(counts.clone()),
                    counts,
                })
            }
        };
        Ok(Self {
            device: *device,
            observed,
            began: Instant::now(),
            data: Duration::ZERO,
            steps: 0,
            waits: waits_on_thread(),
            fallbacks: fallbacks(),
        })
    }

    /// Counts the time of what gets the next batch.
    pub fn data<R>(&mut self, next: impl FnOnce() -> R) -> R {
        let asked = Instant::now();
        let batch = next();
        self.data += asked.elapsed();
        batch
    }

    /// Counts a step.
    pub fn end_step(&mut self) {
        self.steps += 1;
    }

    /// Waits for the device, and says what was measured.
    ///
    /// # Errors
    ///
    /// Returns an error if a computation fails.
    pub fn finish(self) -> Result<LoopReport, ExecutionError> {
        // This wait is not one of the loop.
        let waits = waits_on_thread() - self.waits;
        Wgsl::sync(&self.device)?;
        let seconds = self.began.elapsed().as_secs_f64();
        let steps = self.steps.max(1) as f64;
        let count = |of: fn(&Counts) -> &AtomicU64| {
            let count = self.observed.as_ref().map(|observed| of(&observed.counts));
            count.map_or(0, |count| count.load(Ordering::Relaxed)) as f64
        };
        let (launches, work) = (count(|counts| &counts.launches), count(|counts| &counts.work));
        let new_fallbacks = fallbacks().into_iter().filter_map(|(op, count)| {
            let before = self.fallbacks.get(&op).copied().unwrap_or_default();
            (count > before).then_some(op)
        });
        let usage = memory::usage(&self.device).unwrap_or_default();
        let mut report = LoopReport {
            steps: self.steps,
            seconds_per_step: seconds / steps,
            data_share: self.data.as_secs_f64() / seconds.max(1e-9),
            waits_per_step: waits as f64 / steps,
            launches_per_step: launches / steps,
            peak_memory: usage.peak,
            advice: Vec::new(),
        };
        let odd_share = count(|counts| &counts.odd_products) / work.max(1.0);
        let memory = self.observed.as_ref().and_then(|observed| observed.memory);
        report.advise(new_fallbacks.collect(), work / launches.max(1.0), odd_share, memory);
        Ok(report)
    }
}

/// What a loop was measured to do, with advice: see [`Advisor`]. Displayed as text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LoopReport {
    /// The steps that were measured.
    pub steps: u64,
    /// The time of a step.
    pub seconds_per_step: f64,
    /// The share of the time that steps waited for data, 0 to 1.
    pub data_share: f64,
    /// How often a step waited for the device.
    pub waits_per_step: f64,
    /// The kernels that a step launched; 0 on the CPU device.
    pub launches_per_step: f64,
    /// The most memory in use since the device was opened, or since its peak was reset, in bytes.
    pub peak_memory: u64,
    /// What slows the loop; what probably costs most is first.
    pub advice: Vec<Advice>,
}

/// What slows a loop.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Advice {
    /// Ops run on the CPU, with a readback and an upload each.
    Fallbacks {
        /// Their names.
        ops: Vec<String>,
    },
    /// Steps wait for data.
    Data {
        /// The share of the time.
        share: f64,
    },
    /// Steps wait for the device, which then has nothing to do until the next launch.
    Waits {
        /// How often a step does.
        per_step: f64,
    },
    /// A step launches many small kernels, so that the host is slower than the device.
    SmallLaunches {
        /// Launches of a step.
        per_step: f64,
        /// The mean of their operations.
        work: f64,
    },
    /// Products read single elements, because sizes are not multiples of 4.
    OddSizes {
        /// Their share of all operations.
        share: f64,
    },
    /// The memory is almost used up.
    Memory {
        /// The share of the device's memory at the peak.
        share: f64,
    },
}

impl LoopReport {
    fn advise(&mut self, ops: Vec<String>, work: f64, odd_share: f64, memory: Option<u64>) {
        let per_step = self.launches_per_step;
        let used = memory.map_or(0.0, |memory| self.peak_memory as f64 / memory.max(1) as f64);
        let found = [
            (!ops.is_empty()).then_some(Advice::Fallbacks { ops }),
            (self.data_share > DATA).then_some(Advice::Data { share: self.data_share }),
            (self.waits_per_step > 1.0 / STEPS_PER_WAIT)
                .then_some(Advice::Waits { per_step: self.waits_per_step }),
            (per_step > LAUNCHES && work < WORK)
                .then_some(Advice::SmallLaunches { per_step, work }),
            (odd_share > ODD).then_some(Advice::OddSizes { share: odd_share }),
            (used > MEMORY).then_some(Advice::Memory { share: used }),
        ];
        self.advice = found.into_iter().flatten().collect();
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fallbacks { ops } => write!(
                f,
                "{} ran on the CPU, with a readback and an upload each: use ops that have a kernel",
                ops.join(", ")
            ),
            Self::Data { share } => write!(
                f,
                "steps waited for data {:.0} % of the time: use more workers of a Loader, upload images as bytes, or \
                 prepare less",
                share * 100.0
            ),
            Self::Waits { per_step } => write!(
                f,
                "a step waited for the device {per_step:.1} times: read metrics every some steps, by Mean or Readback; \
                 BURN_WGSL_DEBUG=waits names each wait"
            ),
            Self::SmallLaunches { per_step, work } => write!(
                f,
                "a step launched {per_step:.0} kernels of {:.1} million operations: use a larger batch",
                work / 1e6
            ),
            Self::OddSizes { share } => write!(
                f,
                "products with sizes that are not multiples of 4 did {:.0} % of the operations: round widths up",
                share * 100.0
            ),
            Self::Memory { share } => write!(
                f,
                "{:.0} % of the memory were in use: use a smaller batch with MeanGradients, or Segments",
                share * 100.0
            ),
        }
    }
}

impl fmt::Display for LoopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} steps of {:.2} ms: {:.0} % of the time waiting for data, {:.2} waits for the device and {:.0} \
             launches a step",
            self.steps,
            self.seconds_per_step * 1e3,
            self.data_share * 100.0,
            self.waits_per_step,
            self.launches_per_step
        )?;
        if self.advice.is_empty() {
            writeln!(f, "nothing of what is measured slows it")?;
        }
        self.advice.iter().try_for_each(|advice| writeln!(f, "- {advice}"))
    }
}
