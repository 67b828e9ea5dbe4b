//! The protocol between the runner and a peer. The peer reads one command per line on stdin and
//! writes one JSON object per line on stdout.
//!
//! | command | reply |
//! |---|---|
//! | `about` | [`Reply::About`] |
//! | `run WORKLOAD` | [`Reply::Times`]; a new workload is warmed up before it is measured |
//! | `steps N` | [`Reply::Done`] after N training steps of the CNN, without warm-up |

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A reply from a peer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The device of the peer: the adapter and its driver, if the peer has this information.
    About(String),
    /// The measured times of a workload.
    Times(Times),
    /// The training steps are done.
    Done {
        /// Peak resident memory of the process in KiB; zero if the system does not report it.
        peak_kib: u64,
    },
    /// The command is unknown or failed.
    Error(String),
}

/// The measured times of a workload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Times {
    /// Time of each repetition in milliseconds, from the first call to the end of the device's
    /// work.
    pub ms: Vec<f64>,
    /// Duration of the warm-up in seconds, if this `run` included one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<f64>,
    /// Mean absolute value of the result, for comparison between peers; present if this `run`
    /// included a warm-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

/// The result of a repetition, still on the device. Calling it reads the result back and returns
/// the mean absolute value.
pub type Output = Box<dyn FnOnce() -> f64>;

/// A workload with its inputs on the device. Each call runs one repetition.
pub type Work = Box<dyn FnMut() -> Output>;

/// A backend that runs the workloads.
pub trait Peer {
    /// Describes the device.
    fn about(&self) -> String;
    /// Uploads the inputs of a workload. Returns `None` if the name is unknown.
    fn prepare(&self, workload: &str) -> Option<Work>;
    /// Waits until the device has finished all submitted work.
    fn sync(&self);
}

/// Repetitions of one `run` continue until this time has passed, so that a short workload gets
/// several samples.
const SAMPLE_TIME: Duration = Duration::from_millis(100);
/// Upper limit of the repetitions of one `run`.
const MAX_REPETITIONS: usize = 20;
/// The warm-up ends after this many consecutive steady repetitions.
const STEADY_REPETITIONS: usize = 4;
/// A repetition is steady if it takes less than this multiple of the fastest repetition so far.
const STEADY_RATIO: f64 = 1.25;
/// Minimum warm-up time after the first repetition, because a backend may compile faster kernels
/// for frequent ops.
const MIN_WARM_UP: Duration = Duration::from_secs(2);
/// Maximum warm-up time after the first repetition.
const MAX_WARM_UP: Duration = Duration::from_secs(15);

/// Answers commands until the end of stdin.
pub fn serve(peer: &impl Peer) -> std::io::Result<()> {
    let mut current: Option<(String, Work)> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let reply = match line.split_once(' ').unwrap_or((line.as_str(), "")) {
            ("about", "") => Reply::About(peer.about()),
            ("run", name) => run(peer, name, &mut current),
            ("steps", count) => steps(peer, count),
            _ => Reply::Error(format!(
                "unknown command `{line}`: use `about`, `run WORKLOAD` or `steps N`"
            )),
        };
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &reply)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

fn run(peer: &impl Peer, name: &str, current: &mut Option<(String, Work)>) -> Reply {
    let (mut warm_up_seconds, mut value) = (None, None);
    let mut work = match current.take() {
        Some((current_name, work)) if current_name == name => work,
        previous => {
            drop(previous); // frees its memory before the new workload allocates
            let Some(mut work) = peer.prepare(name) else {
                return Reply::Error(format!("unknown workload `{name}`"));
            };
            peer.sync();
            let (seconds, mean) = warm_up(peer, &mut work);
            (warm_up_seconds, value) = (Some(seconds), Some(mean));
            work
        }
    };
    let mut ms = Vec::new();
    let started = Instant::now();
    while ms.is_empty() || started.elapsed() < SAMPLE_TIME && ms.len() < MAX_REPETITIONS {
        ms.push(repetition(peer, &mut work).0);
    }
    *current = Some((name.to_owned(), work));
    Reply::Times(Times { ms, warm_up: warm_up_seconds, value })
}

/// Runs one repetition. Returns its time in milliseconds and its result.
fn repetition(peer: &impl Peer, work: &mut Work) -> (f64, Output) {
    let started = Instant::now();
    let output = work();
    peer.sync();
    (started.elapsed().as_secs_f64() * 1e3, output)
}

/// Repeats the workload until its time is steady. Returns the duration in seconds and the mean
/// absolute value of the first result.
fn warm_up(peer: &impl Peer, work: &mut Work) -> (f64, f64) {
    let started = Instant::now();
    let (_, output) = repetition(peer, work);
    let value = output();
    let after_first = Instant::now();
    let (mut fastest, mut steady) = (f64::INFINITY, 0);
    while after_first.elapsed() < MAX_WARM_UP
        && (steady < STEADY_REPETITIONS || after_first.elapsed() < MIN_WARM_UP)
    {
        let (ms, _) = repetition(peer, work);
        steady = if ms < fastest * STEADY_RATIO { steady + 1 } else { 0 };
        if ms * STEADY_RATIO < fastest {
            steady = 1;
        }
        fastest = fastest.min(ms);
    }
    (started.elapsed().as_secs_f64(), value)
}

fn steps(peer: &impl Peer, count: &str) -> Reply {
    let Ok(count) = count.parse::<usize>() else {
        return Reply::Error(format!("`steps {count}`: expected a number of steps"));
    };
    let Some(mut work) = peer.prepare("cnn-step") else {
        return Reply::Error(
            "`steps` requires the workload `cnn-step`, which this peer does not have".into(),
        );
    };
    for _ in 0..count {
        drop(work());
    }
    peer.sync();
    Reply::Done { peak_kib: peak_kib() }
}

/// Returns the peak resident memory of this process (`VmHWM`) in KiB, or zero if unavailable.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// Returns pseudo-random values in -0.5..0.5 that depend only on the index and the seed, so that
/// every peer has the same inputs.
pub fn input_values(seed: u32, count: usize) -> Vec<f32> {
    let hash = |index: usize| {
        let mut x = (index as u32).wrapping_add(seed.wrapping_mul(0x9e37_79b9));
        x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
        x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
        x ^= x >> 15;
        (x >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(hash).collect()
}

/// The device selected on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A software adapter.
    Software,
    /// The first physical GPU.
    Gpu,
}

impl DeviceChoice {
    /// Parses the only command-line argument.
    ///
    /// # Errors
    ///
    /// Returns an error if the argument is neither `software` nor `gpu`.
    pub fn from_args() -> Result<Self, String> {
        match std::env::args().nth(1).as_deref() {
            Some("software") => Ok(Self::Software),
            Some("gpu") => Ok(Self::Gpu),
            other => Err(format!(
                "expected the argument `software` or `gpu`, found `{}`; \
                 start this program through the runner `peers`",
                other.unwrap_or("")
            )),
        }
    }
}
