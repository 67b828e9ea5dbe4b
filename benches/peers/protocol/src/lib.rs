//! What the runner and its peers say to each other: a command a line on stdin, a JSON object a line on stdout.
//!
//! | command | answer |
//! |---|---|
//! | `about` | [`Reply::About`] |
//! | `run WORKLOAD` | [`Reply::Times`]; the first of a workload is preceded by its warm-up |
//! | `steps N` | [`Reply::Done`] after N training steps of the CNN, without any warm-up |

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// An answer of a peer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Where the peer computes: an adapter and its driver, as far as the peer can tell.
    About(String),
    /// Times of one workload.
    Times(Times),
    /// Steps are done.
    Done {
        /// The most memory that the process has had resident so far, in KiB; zero where the system does not tell.
        peak_kib: u64,
    },
    /// The command is not known, or failed.
    Error(String),
}

/// Times of one workload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Times {
    /// Each from the first call to the end of the device's work, in milliseconds.
    pub ms: Vec<f64>,
    /// With the first answer of a workload: what its warm-up took, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<f64>,
    /// With the first answer of a workload: the mean of the result's absolute values, alike for all peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

/// What a repetition leaves: kept until its time is taken, and read only when it is to be compared.
pub type Output = Box<dyn FnOnce() -> f64>;

/// A workload with its inputs on the device; each call is one repetition.
pub type Work = Box<dyn FnMut() -> Output>;

/// What a peer brings along.
pub trait Peer {
    /// Where it computes.
    fn about(&self) -> String;
    /// Makes the inputs of a workload; `None` if its name is not known.
    fn prepare(&self, workload: &str) -> Option<Work>;
    /// Waits until the device has done all that it was given.
    fn sync(&self);
}

/// One answer holds as many repetitions as fit in this time, so that short workloads are not left to chance.
const SAMPLE: Duration = Duration::from_millis(100);
const MOST_REPETITIONS: usize = 20;
/// A warm-up ends when this many repetitions in a row took about as long as the fastest so far,
const STEADY: usize = 4;
const ABOUT: f64 = 1.25;
/// but no sooner than this much time after the first, since a backend may compile better kernels for what runs often,
const WARM_UP_AT_LEAST: Duration = Duration::from_secs(2);
/// and no later than this.
const WARM_UP_AT_MOST: Duration = Duration::from_secs(15);

/// Answers commands until stdin ends.
pub fn serve(peer: &impl Peer) -> std::io::Result<()> {
    let mut current: Option<(String, Work)> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let reply = match line.split_once(' ').unwrap_or((line.as_str(), "")) {
            ("about", "") => Reply::About(peer.about()),
            ("run", name) => run(peer, name, &mut current),
            ("steps", count) => steps(peer, count),
            _ => Reply::Error(format!("unknown command `{line}`")),
        };
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &reply)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

fn run(peer: &impl Peer, name: &str, current: &mut Option<(String, Work)>) -> Reply {
    let mut first = (None, None);
    let mut work = match current.take() {
        Some((held, work)) if held == name => work,
        other => {
            drop(other); // its memory, before the next workload asks for more
            let Some(mut work) = peer.prepare(name) else {
                return Reply::Error(format!("unknown workload `{name}`"));
            };
            peer.sync();
            first = warm_up(peer, &mut work);
            work
        }
    };
    let mut ms = Vec::new();
    let started = Instant::now();
    while ms.is_empty() || started.elapsed() < SAMPLE && ms.len() < MOST_REPETITIONS {
        ms.push(repetition(peer, &mut work).0);
    }
    *current = Some((name.to_owned(), work));
    Reply::Times(Times { ms, warm_up: first.0, value: first.1 })
}

/// One repetition: milliseconds, and what it left.
fn repetition(peer: &impl Peer, work: &mut Work) -> (f64, Output) {
    let started = Instant::now();
    let output = work();
    peer.sync();
    (started.elapsed().as_secs_f64() * 1e3, output)
}

/// Repeats until the time is steady: seconds it took, and the value of the first repetition.
fn warm_up(peer: &impl Peer, work: &mut Work) -> (Option<f64>, Option<f64>) {
    let started = Instant::now();
    let (_, output) = repetition(peer, work);
    let value = output();
    let after_first = Instant::now();
    let (mut fastest, mut steady) = (f64::INFINITY, 0);
    while after_first.elapsed() < WARM_UP_AT_MOST
        && (steady < STEADY || after_first.elapsed() < WARM_UP_AT_LEAST)
    {
        let (ms, _) = repetition(peer, work);
        steady = if ms < fastest * ABOUT { steady + 1 } else { 0 };
        if ms * ABOUT < fastest {
            steady = 1;
        }
        fastest = fastest.min(ms);
    }
    (Some(started.elapsed().as_secs_f64()), Some(value))
}

fn steps(peer: &impl Peer, count: &str) -> Reply {
    let Ok(count) = count.parse::<usize>() else {
        return Reply::Error(format!("`{count}` is not a number of steps"));
    };
    let Some(mut work) = peer.prepare("cnn-step") else {
        return Reply::Error("this peer has no `cnn-step`".into());
    };
    for _ in 0..count {
        drop(work());
    }
    peer.sync();
    Reply::Done { peak_kib: peak_kib() }
}

/// The kernel's high-water mark of this process's resident memory.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// Numbers in -0.5..0.5 that depend on nothing but their position and the seed: the same inputs for every peer.
pub fn numbers(seed: u32, count: usize) -> Vec<f32> {
    let spread = |index: usize| {
        let mut x = (index as u32).wrapping_add(seed.wrapping_mul(0x9e37_79b9));
        x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
        x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
        x ^= x >> 15;
        (x >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(spread).collect()
}

/// The device that the command line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A software adapter.
    Software,
    /// The first real GPU.
    Gpu,
}

impl DeviceChoice {
    /// From the process's only argument.
    pub fn from_args() -> Result<Self, String> {
        match std::env::args().nth(1).as_deref() {
            Some("software") => Ok(Self::Software),
            Some("gpu") => Ok(Self::Gpu),
            other => Err(format!(
                "expected `software` or `gpu`, got `{}`; the runner `peers` starts this",
                other.unwrap_or("")
            )),
        }
    }
}
