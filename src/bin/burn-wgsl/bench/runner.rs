//! Times a job on several devices.
//!
//! The first run is timed separately. After a warm-up, each sample repeats the job for a set time.
//! Devices take turns in each round, so a temporary slowdown of the machine affects all of them.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::runtime::panic_message;
use burn_wgsl::{Profile, ProfileError, Wgsl, WgslDevice};

use super::job::Job;

/// How many samples to take and how long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Samples per job and device.
    pub rounds: usize,
    /// Target duration of a sample. The job is repeated until it takes that long.
    pub sample_time: Duration,
    /// Time limit for the samples of one device. Sampling stops when it is exceeded, but not before
    /// [`MIN_ROUNDS`] samples are taken.
    pub budget: Duration,
}

/// Minimum number of samples, because a median of fewer is unreliable.
const MIN_ROUNDS: usize = 3;
/// Maximum number of runs per sample.
const MAX_RUNS: usize = 4096;
/// Maximum number of runs after each sample that are waited for one by one.
const MAX_SINGLE_RUNS: usize = 8;
/// Maximum number of runs in a GPU profile.
const MAX_PROFILED_RUNS: usize = 16;

/// The measurement of one job on one device. Times are seconds per run.
#[derive(Debug)]
pub struct Timing {
    /// Time of the first run, which includes shader compilation.
    pub first: f64,
    /// Runs per sample.
    pub runs: usize,
    /// Mean time per run of each sample.
    pub samples: Vec<f64>,
    /// Times of runs that the host waits for one by one. Empty if only the host's time counts.
    pub latencies: Vec<f64>,
    /// GPU times of the kernels; `None` if the device has no timestamps.
    pub profile: Option<Profiled>,
}

/// The GPU profile of several runs.
#[derive(Debug)]
pub struct Profiled {
    pub profile: Profile,
    pub runs: usize,
}

/// Times one job on several devices.
///
/// Calls `on_progress` after each step with the device and the step's fraction of the device's
/// work. The fractions of a device add up to 1. If the job panics on a device, for example because
/// memory runs out, the result of that device is the panic message.
pub fn measure(
    devices: &[WgslDevice],
    plan: &Sampling,
    prepare: impl Fn(&WgslDevice) -> Box<dyn Job>,
    on_progress: impl Fn(&WgslDevice, f64),
) -> Vec<Result<Timing, String>> {
    let step = 1.0 / (plan.rounds + 1) as f64;
    let mut timers: Vec<Result<DeviceTimer, String>> = Vec::new();
    for device in devices {
        timers.push(catch_panic(|| DeviceTimer::warm_up(*device, prepare(device), plan)));
        on_progress(device, step);
    }
    for round in 0..plan.rounds {
        // The order alternates, so that no device always runs after the same other device.
        let order: Vec<usize> = match round % 2 {
            0 => (0..devices.len()).collect(),
            _ => (0..devices.len()).rev().collect(),
        };
        for index in order {
            let result = &mut timers[index];
            if let Ok(timer) = result
                && let Err(message) = catch_panic(|| timer.sample(plan))
            {
                *result = Err(message);
            }
            on_progress(&devices[index], step);
        }
    }
    let finish =
        |timer: Result<DeviceTimer, String>| timer.and_then(|timer| catch_panic(|| timer.finish()));
    let timings = timers.into_iter().map(finish).collect();
    for device in devices {
        // Free the memory of this job: the next one may need more.
        let _ = catch_panic(|| Wgsl::memory_cleanup(device));
    }
    timings
}

/// Samples one job on one device.
struct DeviceTimer {
    device: WgslDevice,
    job: Box<dyn Job>,
    first: f64,
    runs: usize,
    samples: Vec<f64>,
    latencies: Vec<f64>,
    elapsed: Duration,
}

impl DeviceTimer {
    /// Times the first run, then repeats the job to find the number of runs per sample.
    fn warm_up(device: WgslDevice, job: Box<dyn Job>, plan: &Sampling) -> Self {
        let mut timer = Self {
            device,
            job,
            first: 0.0,
            runs: 1,
            samples: Vec::new(),
            latencies: Vec::new(),
            elapsed: Duration::ZERO,
        };
        sync(&device);
        timer.first = timer.time(1).as_secs_f64();
        // The second run may compile too: the optimiser has state only after the first step.
        timer.time(1);
        let max_runs = timer.job.max_runs().min(MAX_RUNS);
        loop {
            let elapsed = timer.time(timer.runs);
            if elapsed >= plan.sample_time || timer.runs >= max_runs {
                return timer;
            }
            // Clamped, because short measurements are inaccurate.
            let factor = plan.sample_time.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
            timer.runs =
                ((timer.runs as f64 * factor.clamp(1.5, 10.0)).ceil() as usize).min(max_runs);
        }
    }

    /// Runs the job `runs` times. Each result is computed before it is dropped.
    fn run(&mut self, runs: usize) {
        for _ in 0..runs {
            let output = self.job.run();
            if let Err(error) = burn_wgsl::compute(&self.device) {
                panic!("{error}");
            }
            drop(output);
        }
    }

    /// Runs the job `runs` times, waits for the device and returns the total time, or the host's
    /// time if only that counts.
    fn time(&mut self, runs: usize) -> Duration {
        self.job.create_inputs(runs);
        let start = Instant::now();
        self.run(runs);
        let host_time = start.elapsed();
        sync(&self.device);
        if self.job.is_host_time() { host_time } else { start.elapsed() }
    }

    /// Takes one sample, and times some runs one by one, unless the time budget is exceeded.
    fn sample(&mut self, plan: &Sampling) {
        if self.samples.len() >= MIN_ROUNDS && self.elapsed > plan.budget {
            return;
        }
        let elapsed = self.time(self.runs);
        self.elapsed += elapsed;
        self.samples.push(elapsed.as_secs_f64() / self.runs as f64);
        if self.job.is_host_time() {
            return;
        }
        if self.runs == 1 {
            self.latencies.push(elapsed.as_secs_f64());
            return;
        }
        let start = Instant::now();
        for _ in 0..MAX_SINGLE_RUNS.min(self.runs) {
            let latency = self.time(1);
            self.latencies.push(latency.as_secs_f64());
            if start.elapsed() > plan.sample_time / 4 {
                break;
            }
        }
        self.elapsed += start.elapsed();
    }

    /// Profiles the job on the GPU and returns all measurements.
    fn finish(mut self) -> Timing {
        let runs = self.runs.min(MAX_PROFILED_RUNS);
        self.job.create_inputs(runs);
        let device = self.device;
        let profile = match device.resolve() {
            // It has no kernels.
            Ok(ResolvedDevice::Cpu) => None,
            _ => match burn_wgsl::profile(&device, || self.run(runs)) {
                Ok(((), profile)) => Some(Profiled { profile, runs }),
                Err(ProfileError::NoTimestamps { .. }) => None,
                Err(error) => panic!("{error}"),
            },
        };
        let Self { first, runs, samples, latencies, .. } = self;
        Timing { first, runs, samples, latencies, profile }
    }
}

fn sync(device: &WgslDevice) {
    if let Err(error) = Wgsl::sync(device) {
        panic!("{error}");
    }
}

thread_local! {
    /// Whether this thread is inside [`catch_panic`].
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` and returns its result, or the message of its panic. Burn's ops panic on errors such
/// as running out of memory, because they do not return a `Result`.
pub fn catch_panic<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    let outer = IS_CATCHING.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    IS_CATCHING.set(outer);
    result.map_err(|payload| panic_message(payload.as_ref()))
}

/// Installs a panic hook that prints nothing for panics inside [`catch_panic`]: the report contains
/// their messages.
pub fn silence_caught_panics() {
    let default_hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !IS_CATCHING.get() {
            default_hook(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::super::job::op;
    use super::*;

    const PLAN: Sampling = Sampling {
        rounds: 4,
        sample_time: Duration::from_millis(2),
        budget: Duration::from_secs(1),
    };

    #[test]
    fn samples_are_times_per_run_and_exclude_the_first_run() {
        let sleep = |first_ms: u64, other_ms: u64| {
            let mut runs = 0;
            op(move || {
                runs += 1;
                let duration_ms = if runs == 1 { first_ms } else { other_ms };
                std::thread::sleep(Duration::from_millis(duration_ms));
            })
        };
        let timings = measure(&[WgslDevice::Cpu], &PLAN, |_| sleep(50, 1), |_, _| ());
        let timing = timings[0].as_ref().unwrap();
        assert!(timing.first >= 0.05, "{timing:?}");
        assert_eq!(timing.samples.len(), PLAN.rounds);
        assert!(timing.samples.iter().all(|&sample| (0.001..0.03).contains(&sample)), "{timing:?}");
        let is_waited_for = |latency: &f64| (0.001..0.03).contains(latency);
        assert!(timing.latencies.iter().all(is_waited_for), "{timing:?}");
        assert!(timing.latencies.len() >= timing.samples.len(), "{timing:?}");
        assert!(timing.profile.is_none(), "the CPU has no timestamps");
    }

    #[test]
    fn an_exceeded_budget_stops_after_the_minimum_number_of_rounds() {
        let plan = Sampling { budget: Duration::ZERO, ..PLAN };
        let sleep = |_: &WgslDevice| op(|| std::thread::sleep(Duration::from_millis(3)));
        let timings = measure(&[WgslDevice::Cpu], &plan, sleep, |_, _| ());
        assert_eq!(timings[0].as_ref().unwrap().samples.len(), MIN_ROUNDS);
    }

    #[test]
    fn a_panic_fails_only_its_own_device() {
        // Every machine has this device; the second job fails.
        let devices = [WgslDevice::Cpu, WgslDevice::Cpu];
        let prepared = std::cell::Cell::new(0);
        let prepare = |_: &WgslDevice| {
            let fails = prepared.replace(prepared.get() + 1) == 1;
            op(move || assert!(!fails, "no memory left"))
        };
        let progress = std::cell::Cell::new(0.0);
        let timings = measure(&devices, &PLAN, prepare, |_, fraction| {
            progress.set(progress.get() + fraction)
        });
        assert!(timings[0].is_ok());
        assert_eq!(timings[1].as_ref().unwrap_err(), "no memory left");
        assert!((progress.get() - 2.0).abs() < 1e-9, "progress adds up to 1 per device");
    }
}
