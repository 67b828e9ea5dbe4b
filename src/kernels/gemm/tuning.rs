//! Tuning: timing the strategies for matrix products on this adapter and keeping the fastest.
//!
//! Without a tuning result, the built-in choice for the class of the adapter applies (`policy/`).
//! A trial times the candidates for one class of shapes, checks each against the scalar strategy,
//! and stores the winner in a file per adapter, driver and crate version. Trials run on request
//! (`burn_wgsl::tune`), or on first use with [`Tuning::FirstUse`].

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::device::CAN_BLOCK;
use crate::kernels::policy::strategy::{GemmSizes, Strategy};
use crate::kernels::{policy, random};
use crate::runtime::Runtime;
use crate::tensor::{DType, Result, Tensor};
use crate::variables;

/// The environment variable that selects a [`Tuning`].
pub const TUNING_VARIABLE: &str = variables::TUNING.name;

/// Floating-point operations of the products that are tuned on first use. A trial of a smaller
/// product does not pay off; a trial of a larger one takes too long.
const TUNED_WORK: RangeInclusive<u64> = 1 << 22..=1 << 37;

/// Maximum number of elements of the products that are tuned on first use, results included. A
/// trial allocates its own operands.
const MAX_TUNED_ELEMENTS: usize = 1 << 26;

/// A function that multiplies two batches of matrices by a given strategy.
pub(crate) type Product = fn(Tensor, Tensor, Strategy) -> Result<Tensor>;

/// How the results of tuning are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuning {
    /// `off`: the built-in choices apply.
    Off,
    /// `cached`, the default: stored results are used.
    Cached,
    /// `first-use`: stored results are used, and shapes without a result are tuned when they first
    /// occur, which takes seconds.
    FirstUse,
}

impl Tuning {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Off, "off"), (Self::Cached, "cached"), (Self::FirstUse, "first-use")];
}

impl FromStr for Tuning {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let setting = Self::ALL.iter().find(|(_, each)| *each == name);
        setting
            .map(|(tuning, _)| *tuning)
            .ok_or_else(|| format!("{name:?} is not off, cached or first-use"))
    }
}

/// The setting of the process: an index into [`Tuning::ALL`], or `UNSET` until it is first read.
static SETTING: AtomicU8 = AtomicU8::new(UNSET);
const UNSET: u8 = u8::MAX;

/// Sets how tuning results are used from now on. Overrides `BURN_WGSL_TUNING`.
///
/// ```no_run
/// use burn_wgsl::{Tuning, set_tuning};
///
/// set_tuning(Tuning::FirstUse); // measure each class of sizes when it is first used
/// ```
pub fn set_tuning(tuning: Tuning) {
    let index = Tuning::ALL.iter().position(|(each, _)| *each == tuning).unwrap_or_default();
    SETTING.store(index as u8, Ordering::Relaxed);
}

/// Returns how tuning results are used.
pub fn tuning() -> Tuning {
    if let Some((tuning, _)) = Tuning::ALL.get(usize::from(SETTING.load(Ordering::Relaxed))) {
        return *tuning;
    }
    let tuning = variables::TUNING.parse(|name| name.parse().ok()).unwrap_or(Tuning::Cached);
    set_tuning(tuning);
    tuning
}

/// The class of products whose sizes have the same base-2 logarithms, rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShapeClass {
    batch: u32,
    m: u32,
    n: u32,
    k: u32,
}

impl ShapeClass {
    /// Returns the class of a product.
    pub(crate) fn of(sizes: GemmSizes) -> Self {
        let log2 = |size: usize| size.max(1).ilog2();
        let GemmSizes { batch, m, n, k } = sizes;
        Self { batch: log2(batch), m: log2(m), n: log2(n), k: log2(k) }
    }

    /// Returns the smallest sizes of the class.
    fn sizes(self) -> GemmSizes {
        GemmSizes { batch: 1 << self.batch, m: 1 << self.m, n: 1 << self.n, k: 1 << self.k }
    }
}

impl fmt::Display for ShapeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GemmSizes { batch, m, n, k } = self.sizes();
        write!(f, "matmul {batch}x {m}x{k} by {k}x{n}")
    }
}

/// The result of tuning one class of shapes.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The class of shapes.
    pub class: ShapeClass,
    /// The median time of each candidate; `None` if it failed or computed a wrong result.
    pub times: Vec<(&'static str, Option<Duration>)>,
    /// The fastest candidate, or the built-in choice if every candidate failed.
    pub winner: &'static str,
    /// The built-in choice.
    pub built_in: &'static str,
}

/// The products `[batch, m, n, k]` whose classes [`tune`] tries: squares, batches, and the shapes
/// of common layers.
const COMMON_PRODUCTS: [[usize; 4]; 12] = [
    [1, 128, 128, 128],
    [1, 256, 256, 256],
    [1, 512, 512, 512],
    [1, 1024, 1024, 1024],
    [1, 2048, 2048, 2048],
    [1, 4096, 4096, 4096],
    [16, 256, 256, 256],
    [64, 64, 64, 32],
    [1, 4096, 32, 128],
    [1, 256, 512, 512],
    [1, 16, 4096, 4096],
    [1, 1024, 1024, 64],
];

/// Tries every candidate for the common classes of products and stores the winners for this
/// adapter. `on_progress` is called after each class. A class is skipped if a product would take
/// the scalar strategy more than a second. A candidate that fails to run is skipped.
///
/// # Errors
///
/// Returns an error if the device fails or is lost, and in a browser, where the host cannot block.
pub(crate) fn tune(
    runtime: &Arc<Runtime>,
    product: Product,
    mut on_progress: impl FnMut(&Trial),
) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    // Operations per second of the scalar strategy.
    let mut speed = f64::INFINITY;
    for [batch, m, n, k] in COMMON_PRODUCTS {
        let sizes = GemmSizes { batch, m, n, k };
        let work = sizes.work() as f64;
        if work / speed > 1.0 {
            continue;
        }
        let trial = try_class(runtime, ShapeClass::of(sizes), product)?;
        if let Some((_, Some(time))) = trial.times.first() {
            speed = work / time.as_secs_f64();
        }
        on_progress(&trial);
        trials.push(trial);
    }
    Ok(trials)
}

/// Tries the candidates for one class and stores the winner.
fn try_class(runtime: &Arc<Runtime>, class: ShapeClass, product: Product) -> Result<Trial> {
    runtime.check_can_block()?;
    let sizes = class.sizes();
    let GemmSizes { batch, m, n, k } = sizes;
    let built_in = policy::of(runtime).gemm_strategy(sizes, DType::F32, true);
    let mut stream = random::PhiloxStream::new(0);
    let mut operand = |shape: &[usize]| {
        let normal = random::Sampler::Normal { mean: 0.0, deviation: 1.0 };
        random::fill(runtime, shape, normal, DType::F32, stream.take(shape.iter().product()))
    };
    let (a, b) = (operand(&[batch, m, k])?, operand(&[batch, k, n])?);
    let run = |strategy| product(a.clone(), b.clone(), strategy);
    let reference = run(Strategy::Scalar)?;
    let mut times: Vec<(Strategy, Option<Duration>)> = Vec::new();
    for strategy in policy::of(runtime).gemm_candidates() {
        let is_correct = run(strategy).and_then(|out| agree(&reference, &out, k));
        let time = match is_correct {
            Ok(true) => Some(median_time(runtime, || run(strategy).map(drop))?),
            Ok(false) => {
                log::warn!(
                    "{class}: {} computes a wrong result on this adapter and is skipped",
                    strategy.name()
                );
                None
            }
            Err(error) => {
                // A lost device fails every candidate.
                runtime.check_usable()?;
                log::warn!("{class}: {} failed and is skipped: {error}", strategy.name());
                None
            }
        };
        times.push((strategy, time));
    }
    let timed = times.iter().filter_map(|(strategy, time)| Some((*strategy, (*time)?)));
    let fastest = timed.min_by_key(|(_, time)| *time);
    let winner = fastest.map_or(built_in, |(strategy, _)| strategy);
    if fastest.is_some() {
        runtime.tuning_cache().store(&class.to_string(), winner.name());
    }
    Ok(Trial {
        class,
        times: times.into_iter().map(|(strategy, time)| (strategy.name(), time)).collect(),
        winner: winner.name(),
        built_in: built_in.name(),
    })
}

/// Returns whether two products of standard normal matrices differ only by the rounding of sums of
/// `k` terms.
fn agree(reference: &Tensor, out: &Tensor, k: usize) -> Result<bool> {
    let ranges = [reference.readback_range()?, out.readback_range()?];
    let read = reference.runtime().read_blocking(&ranges)?;
    let floats: Vec<Vec<f32>> =
        read.iter().map(|bytes| bytemuck::pod_collect_to_vec(bytes)).collect();
    let limit = 1e-5 * (k as f32).max(16.0);
    // `false` for NaN.
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= limit;
    Ok(floats[0].len() == floats[1].len() && floats[0].iter().zip(&floats[1]).all(close))
}

/// Returns the median time of `run` over five samples of about 20 ms, GPU time included.
fn median_time(runtime: &Runtime, run: impl Fn() -> Result<()>) -> Result<Duration> {
    let sample = |runs: u32| -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..runs {
            run()?;
        }
        runtime.sync()?;
        Ok(start.elapsed() / runs)
    };
    let once = sample(1)?.min(sample(1)?);
    let target = Duration::from_millis(20).as_secs_f64();
    let runs = (target / once.as_secs_f64().max(1e-6)).clamp(1.0, 200.0) as u32;
    let mut samples = (0..5).map(|_| sample(runs)).collect::<Result<Vec<_>>>()?;
    samples.sort_unstable();
    Ok(samples[samples.len() / 2])
}

/// Returns the tuning result for products of this class, or `None` without a result. With
/// [`Tuning::FirstUse`], runs a trial if there is no result.
pub(crate) fn tuned(
    runtime: &Arc<Runtime>,
    sizes: GemmSizes,
    product: Product,
) -> Option<Strategy> {
    // A browser can neither block during a trial nor store its result.
    if !CAN_BLOCK {
        return None;
    }
    let setting = tuning();
    let cache = runtime.tuning_cache();
    if setting == Tuning::Off || (setting == Tuning::Cached && cache.is_empty()) {
        return None;
    }
    let class = ShapeClass::of(sizes);
    if let Some(name) = cache.get(&class.to_string()) {
        return name.parse().ok();
    }
    let GemmSizes { batch, m, n, k } = sizes;
    let elements = batch * (m * k + k * n + m * n);
    let pays_off = TUNED_WORK.contains(&sizes.work()) && elements <= MAX_TUNED_ELEMENTS;
    if setting == Tuning::Cached || !pays_off {
        return None;
    }
    match try_class(runtime, class, product) {
        Ok(trial) => trial.winner.parse().ok(),
        Err(error) => {
            let built_in = policy::of(runtime).gemm_strategy(sizes, DType::F32, true);
            log::warn!("{class}: tuning failed ({error}); {} is used", built_in.name());
            // Without a result, every call would run another trial.
            cache.set_for_process(&class.to_string(), built_in.name());
            Some(built_in)
        }
    }
}
