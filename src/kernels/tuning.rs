//! Which strategy for matrix products is the fastest on this very adapter, found out by trying.
//!
//! A table by the adapter's class serves everybody at once (`Strategy::built_in`). Tuning times the candidates for products of
//! one class of sizes, checks each against the plain kernel, and keeps the winner in a file per adapter, driver and
//! version of this crate. It runs when asked for ([`tune`]), or on first use where the user says so.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use super::gemm::{Strategy, with_strategy};
use super::{matmul, random};
use crate::device::CAN_BLOCK;
use crate::runtime::Runtime;
use crate::tensor::{DType, Result, Tensor};

/// The environment variable that says what is made of tuning: a word of [`Tuning`].
pub const TUNING_VARIABLE: &str = "BURN_WGSL_TUNING";

/// Products of fewer operations are not tried on first use, and those of more take too long.
const WORTH_TRYING: RangeInclusive<u64> = 1 << 22..=1 << 37;

/// Nor are those of more numbers: a trial has operands and results of its own.
const ROOM: usize = 1 << 26;

/// What is made of tuning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuning {
    /// Nothing: the built-in table decides. `off`
    Off,
    /// What was found out earlier is used. `kept`, the default
    Kept,
    /// What is met for the first time is found out there and then, which takes seconds. `first-use`
    FirstUse,
}

impl Tuning {
    const EVERY: [(Self, &'static str); 3] =
        [(Self::Off, "off"), (Self::Kept, "kept"), (Self::FirstUse, "first-use")];
}

impl FromStr for Tuning {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        let found = Self::EVERY.iter().find(|(_, name)| *name == word);
        found
            .map(|(tuning, _)| *tuning)
            .ok_or_else(|| format!("{word:?} is none of off, kept and first-use"))
    }
}

/// The setting of the process: an index into [`Tuning::EVERY`], or `UNSET` until it is first asked for.
static SETTING: AtomicU8 = AtomicU8::new(UNSET);
const UNSET: u8 = u8::MAX;

/// Sets what is made of tuning from now on, whatever the environment says.
pub fn set_tuning(tuning: Tuning) {
    let index = Tuning::EVERY.iter().position(|(each, _)| *each == tuning).unwrap_or_default();
    SETTING.store(index as u8, Ordering::Relaxed);
}

/// What is made of tuning.
pub fn tuning() -> Tuning {
    if let Some((tuning, _)) = Tuning::EVERY.get(usize::from(SETTING.load(Ordering::Relaxed))) {
        return *tuning;
    }
    let tuning = match std::env::var(TUNING_VARIABLE).map(|word| word.parse()) {
        Ok(Ok(tuning)) => tuning,
        Ok(Err(why)) => {
            log::warn!("{TUNING_VARIABLE}: {why}; what was found out earlier is used");
            Tuning::Kept
        }
        Err(_) => Tuning::Kept,
    };
    set_tuning(tuning);
    tuning
}

/// Products whose sizes have the same powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    batch: u32,
    m: u32,
    n: u32,
    k: u32,
}

impl Class {
    /// The class of `batch` products of `[m, k]` and `[k, n]`.
    pub fn of(batch: usize, m: usize, n: usize, k: usize) -> Self {
        let [batch, m, n, k] = [batch, m, n, k].map(|size| size.max(1).ilog2());
        Self { batch, m, n, k }
    }

    fn sizes(self) -> [usize; 4] {
        [self.batch, self.m, self.n, self.k].map(|power| 1 << power)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [batch, m, n, k] = self.sizes();
        write!(f, "matmul {batch}x {m}x{k} by {k}x{n}")
    }
}

/// What was tried for a class.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The products.
    pub class: Class,
    /// Each candidate and its median time; none for one that failed or computed something else.
    pub times: Vec<(&'static str, Option<Duration>)>,
    /// The fastest.
    pub winner: &'static str,
    /// What the built-in table takes.
    pub built_in: &'static str,
}

/// The classes that [`tune`] tries: squares, batches, and the shapes of layers.
const CLASSES: [[usize; 4]; 12] = [
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

/// Tries every candidate for the common classes of products, and keeps the winners for this adapter. `heard` is told of
/// each class when it is done. Classes of which one product would take the plain kernel above a second are left out.
///
/// # Errors
///
/// When the device fails or is lost, and in a browser, where nothing can wait. That a candidate cannot run is no error: it does not
/// win.
pub fn tune(runtime: &Arc<Runtime>, mut heard: impl FnMut(&Trial)) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    let mut speed = f64::INFINITY;
    for [batch, m, n, k] in CLASSES {
        let work = 2.0 * (batch * m) as f64 * (n * k) as f64;
        if work / speed > 1.0 {
            continue;
        }
        let trial = try_class(runtime, Class::of(batch, m, n, k))?;
        if let Some((_, Some(time))) = trial.times.first() {
            speed = work / time.as_secs_f64();
        }
        heard(&trial);
        trials.push(trial);
    }
    Ok(trials)
}

/// Tries the candidates for one class and keeps the winner.
pub(crate) fn try_class(runtime: &Arc<Runtime>, class: Class) -> Result<Trial> {
    runtime.check_can_block()?;
    let [batch, m, n, k] = class.sizes();
    let built_in = Strategy::built_in(runtime, batch, m, n, k, true);
    let mut stream = random::Stream::new(0);
    let mut operand = |shape: &[usize]| {
        let draw = random::Draw::Normal { mean: 0.0, deviation: 1.0 };
        random::fill(runtime, shape, draw, DType::F32, stream.take(shape.iter().product()))
    };
    let (a, b) = (operand(&[batch, m, k])?, operand(&[batch, k, n])?);
    let product = |strategy| with_strategy(strategy, || matmul::matmul(a.clone(), b.clone()));
    let truth = product(Strategy::Plain)?;
    let mut times: Vec<(Strategy, Option<Duration>)> = Vec::new();
    for strategy in Strategy::candidates(runtime) {
        let agrees = product(strategy).and_then(|out| agree(&truth, &out, k));
        let time = match agrees {
            Ok(true) => Some(median(runtime, || product(strategy).map(drop))?),
            Ok(false) => {
                log::warn!(
                    "{class}: {} computes something else here, and is left out",
                    strategy.word()
                );
                None
            }
            Err(error) => {
                // On a device that is gone nothing more is found out.
                runtime.check_lost()?;
                log::warn!("{class}: {} cannot run here ({error})", strategy.word());
                None
            }
        };
        times.push((strategy, time));
    }
    let fastest = times
        .iter()
        .filter_map(|(strategy, time)| Some((*strategy, (*time)?)))
        .min_by_key(|(_, time)| *time);
    let winner = fastest.map_or(built_in, |(strategy, _)| strategy);
    if fastest.is_some() {
        runtime.tuning_cache().keep(&class.to_string(), winner.word());
    }
    Ok(Trial {
        class,
        times: times.into_iter().map(|(strategy, time)| (strategy.word(), time)).collect(),
        winner: winner.word(),
        built_in: built_in.word(),
    })
}

/// Whether two products of standard normal numbers are the same but for the rounding of sums of `k` terms.
fn agree(truth: &Tensor, out: &Tensor, k: usize) -> Result<bool> {
    let parts = truth.runtime().read_now(&[truth.part(), out.part()])?;
    let floats: Vec<Vec<f32>> =
        parts.iter().map(|bytes| bytemuck::pod_collect_to_vec(bytes)).collect();
    let limit = 1e-5 * (k as f32).max(16.0);
    // A comparison with NaN is no agreement.
    Ok(floats[0].len() == floats[1].len()
        && floats[0].iter().zip(&floats[1]).all(|(a, b)| (a - b).abs() <= limit))
}

/// The median time of five samples of some 20 ms, the device's work included.
fn median(runtime: &Runtime, run: impl Fn() -> Result<()>) -> Result<Duration> {
    let sample = |times: u32| -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..times {
            run()?;
        }
        runtime.sync()?;
        Ok(start.elapsed() / times)
    };
    let once = sample(1)?.min(sample(1)?);
    let times = (Duration::from_millis(20).as_secs_f64() / once.as_secs_f64().max(1e-6))
        .clamp(1.0, 200.0) as u32;
    let mut samples = (0..5).map(|_| sample(times)).collect::<Result<Vec<_>>>()?;
    samples.sort_unstable();
    Ok(samples[samples.len() / 2])
}

/// The strategy that was found the fastest for products like this one, if anything was.
pub(crate) fn found(
    runtime: &Arc<Runtime>,
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
) -> Option<Strategy> {
    // Trying means waiting, and there is nowhere to keep what was found.
    if !CAN_BLOCK {
        return None;
    }
    let setting = tuning();
    let tuning_cache = runtime.tuning_cache();
    if setting == Tuning::Off || (setting == Tuning::Kept && tuning_cache.is_empty()) {
        return None;
    }
    let class = Class::of(batch, m, n, k);
    if let Some(word) = tuning_cache.get(&class.to_string()) {
        return word.parse().ok();
    }
    let work = 2 * (batch * m) as u64 * (n * k) as u64;
    let numbers = batch * (m * k + k * n + m * n);
    if setting == Tuning::Kept || !WORTH_TRYING.contains(&work) || numbers > ROOM {
        return None;
    }
    match try_class(runtime, class) {
        Ok(trial) => trial.winner.parse().ok(),
        Err(error) => {
            let built_in = Strategy::built_in(runtime, batch, m, n, k, true);
            log::warn!("{class}: nothing could be tried ({error}): {} is taken", built_in.word());
            // Else it would be tried at each call.
            runtime.tuning_cache().hold(&class.to_string(), built_in.word());
            Some(built_in)
        }
    }
}
