//! How a job is timed: first run apart, warm-up, samples long enough to trust, and rounds that take turns over devices,
//! so that whatever slows the machine down for a while slows all of them.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use burn_wgsl::{Profile, ProfileError, Wgsl, WgslDevice};

use super::job::Job;

/// How much time to take.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Samples of each job on each device.
    pub rounds: usize,
    /// How long a sample should last: the job is queued as often as that takes.
    pub sample: Duration,
    /// Past this, rounds end early, though not before there are [`FEWEST_ROUNDS`].
    pub budget: Duration,
}

/// A median of fewer samples says little.
const FEWEST_ROUNDS: usize = 3;
/// No sample has more runs than this, however short they are.
const MOST_RUNS: usize = 4096;
/// So many runs are profiled for their time on the GPU.
const PROFILED_RUNS: usize = 16;

/// What was measured of one job on one device. Times are seconds for one run.
#[derive(Debug)]
pub struct Timing {
    /// The very first run, compiling included.
    pub first: f64,
    /// How often a sample runs the job.
    pub runs: usize,
    /// One mean for each sample.
    pub samples: Vec<f64>,
    /// Kernels on the GPU, where the device has timestamps.
    pub profile: Option<Profiled>,
}

/// The GPU time of so many runs.
#[derive(Debug)]
pub struct Profiled {
    pub profile: Profile,
    pub runs: usize,
}

/// Times one job on several devices. `done` is called after each part of the work with the part that it was of the
/// whole on that device. A job that panics, as one does that finds no memory, gives its message instead of a timing.
pub fn measure(
    devices: &[WgslDevice],
    plan: &Plan,
    prepare: impl Fn(&WgslDevice) -> Box<dyn Job>,
    done: impl Fn(&WgslDevice, f64),
) -> Vec<Result<Timing, String>> {
    let part = 1.0 / (plan.rounds + 1) as f64;
    let mut contestants: Vec<Result<Contestant, String>> = Vec::new();
    for device in devices {
        contestants.push(guarded(|| Contestant::warm(*device, prepare(device), plan)));
        done(device, part);
    }
    for round in 0..plan.rounds {
        // There and back again, so that nobody always follows the same neighbour.
        let order: Vec<usize> = match round % 2 {
            0 => (0..devices.len()).collect(),
            _ => (0..devices.len()).rev().collect(),
        };
        for index in order {
            let contestant = &mut contestants[index];
            if let Ok(one) = contestant
                && let Err(message) = guarded(|| one.round(plan))
            {
                *contestant = Err(message);
            }
            done(&devices[index], part);
        }
    }
    let finish = |contestant: Result<Contestant, String>| {
        contestant.and_then(|one| guarded(|| one.finish()))
    };
    let timings = contestants.into_iter().map(finish).collect();
    for device in devices {
        // What this job needed may be in the way of the next, larger one.
        let _ = guarded(|| Wgsl::memory_cleanup(device));
    }
    timings
}

/// One device at work on the job.
struct Contestant {
    device: WgslDevice,
    job: Box<dyn Job>,
    first: f64,
    runs: usize,
    samples: Vec<f64>,
    spent: Duration,
}

impl Contestant {
    /// Runs the job until it has been warm for the length of a sample, and finds how often a sample must run it.
    fn warm(device: WgslDevice, job: Box<dyn Job>, plan: &Plan) -> Self {
        let mut one =
            Self { device, job, first: 0.0, runs: 1, samples: Vec::new(), spent: Duration::ZERO };
        sync(&device);
        one.first = one.time(1).as_secs_f64();
        // The second run may compile too: an optimizer has its state only now.
        one.time(1);
        let most = one.job.most_runs().min(MOST_RUNS);
        loop {
            let took = one.time(one.runs);
            if took >= plan.sample || one.runs >= most {
                return one;
            }
            // The first guesses are too short to rely on.
            let factor = plan.sample.as_secs_f64() / took.as_secs_f64().max(1e-9);
            one.runs = ((one.runs as f64 * factor.clamp(1.5, 10.0)).ceil() as usize).min(most);
        }
    }

    /// Queues the job so often, waits for the device, and tells how long all of it took.
    fn time(&mut self, runs: usize) -> Duration {
        self.job.stock(runs);
        let start = Instant::now();
        for _ in 0..runs {
            self.job.run();
        }
        sync(&self.device);
        start.elapsed()
    }

    fn round(&mut self, plan: &Plan) {
        if self.samples.len() >= FEWEST_ROUNDS && self.spent > plan.budget {
            return;
        }
        let took = self.time(self.runs);
        self.spent += took;
        self.samples.push(took.as_secs_f64() / self.runs as f64);
    }

    fn finish(mut self) -> Timing {
        let runs = self.runs.min(PROFILED_RUNS);
        self.job.stock(runs);
        let profile =
            match burn_wgsl::profile(&self.device, || (0..runs).for_each(|_| self.job.run())) {
                Ok(((), profile)) => Some(Profiled { profile, runs }),
                Err(ProfileError::Cpu | ProfileError::NoTimestamps { .. }) => None,
                Err(error) => panic!("{error}"),
            };
        Timing { first: self.first, runs: self.runs, samples: self.samples, profile }
    }
}

fn sync(device: &WgslDevice) {
    if let Err(error) = Wgsl::sync(device) {
        panic!("{error}");
    }
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// What `work` returns, or the message of its panic: Burn's ops have no other way to say that the memory is not there.
pub fn guarded<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    let outer = GUARDED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    result.map_err(|payload| message(payload.as_ref()))
}

/// From now on a panic in [`guarded`] work prints nothing, since its message is told in the report.
pub fn hush_guarded_panics() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !GUARDED.get() {
            print(info);
        }
    }));
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("it failed without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::job::op;
    use super::*;

    const PLAN: Plan =
        Plan { rounds: 4, sample: Duration::from_millis(2), budget: Duration::from_secs(1) };

    #[test]
    fn samples_are_for_one_run_and_without_the_first() {
        let nap = |first: u64, other: u64| {
            let mut runs = 0;
            op(move || {
                runs += 1;
                std::thread::sleep(Duration::from_millis(if runs == 1 { first } else { other }));
            })
        };
        let timings = measure(&[WgslDevice::Cpu], &PLAN, |_| nap(50, 1), |_, _| ());
        let timing = timings[0].as_ref().unwrap();
        assert!(timing.first >= 0.05, "{timing:?}");
        assert_eq!(timing.samples.len(), PLAN.rounds);
        assert!(timing.samples.iter().all(|&sample| (0.001..0.03).contains(&sample)), "{timing:?}");
        assert!(timing.profile.is_none(), "the CPU has no timestamps");
    }

    #[test]
    fn past_the_budget_three_rounds_are_enough() {
        let plan = Plan { budget: Duration::ZERO, ..PLAN };
        let nap = |_: &WgslDevice| op(|| std::thread::sleep(Duration::from_millis(3)));
        let timings = measure(&[WgslDevice::Cpu], &plan, nap, |_, _| ());
        assert_eq!(timings[0].as_ref().unwrap().samples.len(), FEWEST_ROUNDS);
    }

    #[test]
    fn a_panic_is_the_result_of_its_device_alone() {
        let devices = [WgslDevice::Cpu, WgslDevice::Auto];
        let prepare = |device: &WgslDevice| {
            let fails = *device == WgslDevice::Auto;
            op(move || assert!(!fails, "no memory left"))
        };
        let done = std::cell::Cell::new(0.0);
        // The job touches no device, so `auto` may be anything here.
        let timings = measure(&devices, &PLAN, prepare, |_, part| done.set(done.get() + part));
        assert!(timings[0].is_ok());
        assert_eq!(timings[1].as_ref().unwrap_err(), "no memory left");
        assert!((done.get() - 2.0).abs() < 1e-9, "progress reaches its end");
    }
}
