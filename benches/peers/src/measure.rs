//! Interleaved measurement: the peers take turns in each round, so that drift of the machine's
//! speed affects all of them equally.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use peer_protocol::Reply;

use crate::peers::Peer;
use crate::process::{Launcher, Process};
use crate::workloads::{Kind, Workload};

/// The result of one peer in one workload.
#[derive(Default)]
pub struct Outcome {
    /// Samples in the workload's unit.
    pub samples: Vec<f64>,
    /// Mean absolute value of the computed result.
    pub value: Option<f64>,
    /// Duration of the warm-up in seconds.
    pub warm_up: Option<f64>,
    /// The error that ended the measurement.
    pub failure: Option<String>,
}

/// The peers of a run and their processes.
pub struct Measurement {
    peers: Vec<(Launcher, Option<Process>)>,
    limit: Duration,
    rounds: u32,
    steps: u32,
}

impl Measurement {
    pub fn new(launchers: Vec<Launcher>, limit: Duration, rounds: u32, steps: u32) -> Self {
        Self {
            peers: launchers.into_iter().map(|launcher| (launcher, None)).collect(),
            limit,
            rounds,
            steps,
        }
    }

    pub fn peers(&self) -> impl Iterator<Item = &'static Peer> + Clone {
        self.peers.iter().map(|(launcher, _)| launcher.peer)
    }

    pub fn launchers(&self) -> impl Iterator<Item = &Launcher> {
        self.peers.iter().map(|(launcher, _)| launcher)
    }

    /// Runs all rounds of a workload. Returns one outcome per peer.
    pub fn measure(&mut self, workload: &Workload) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = self.peers.iter().map(|_| Outcome::default()).collect();
        let rounds = match workload.kind {
            Kind::FirstCold | Kind::Peak => 1,
            Kind::Op | Kind::Step | Kind::FirstWarm => self.rounds,
        };
        if !matches!(workload.kind, Kind::Op | Kind::Step) {
            // End the idle processes, because they still hold memory.
            self.peers.iter_mut().for_each(|(_, process)| *process = None);
        }
        for round in 0..rounds as usize {
            for turn in 0..self.peers.len() {
                // Each round starts with the next peer, so that no peer is always first.
                let index = (round + turn) % self.peers.len();
                if outcomes[index].failure.is_none()
                    && let Err(error) = self.turn(index, workload, &mut outcomes[index])
                {
                    self.peers[index].1 = None;
                    outcomes[index].failure = Some(format!("{error:#}"));
                }
            }
        }
        outcomes
    }

    /// Adds the samples of one peer's turn to `outcome`.
    fn turn(&mut self, index: usize, workload: &Workload, outcome: &mut Outcome) -> Result<()> {
        let (limit, steps) = (self.limit, self.steps);
        let (launcher, process) = &mut self.peers[index];
        let first_step = launcher.caches.join("first-step");
        match workload.kind {
            Kind::Op | Kind::Step => {
                match request(launcher, process, &format!("run {}", workload.name), limit)? {
                    Reply::Times(times) => {
                        outcome.samples.extend(times.ms);
                        outcome.value = outcome.value.or(times.value);
                        outcome.warm_up = outcome.warm_up.or(times.warm_up);
                    }
                    other => bail!("unexpected reply to `run`: {other:?}"),
                }
            }
            Kind::FirstCold => {
                if first_step.exists() {
                    std::fs::remove_dir_all(&first_step)?;
                }
                outcome.samples.push(train_in_new_process(launcher, &first_step, 1, limit)?.0);
            }
            Kind::FirstWarm => {
                if !first_step.exists() {
                    train_in_new_process(launcher, &first_step, 1, limit)?;
                }
                outcome.samples.push(train_in_new_process(launcher, &first_step, 1, limit)?.0);
            }
            Kind::Peak => match train_in_new_process(launcher, &launcher.caches, steps, limit)?.1 {
                0 => bail!("the system does not report peak process memory"),
                kib => outcome.samples.push(kib as f64 / 1024.0),
            },
        }
        Ok(())
    }
}

/// Sends a command to the peer's process, which is started if necessary. Returns the reply.
fn request(
    launcher: &Launcher,
    process: &mut Option<Process>,
    command: &str,
    limit: Duration,
) -> Result<Reply> {
    let running = match process {
        Some(running) => running,
        None => process.insert(launcher.start(&launcher.caches)?),
    };
    running.request(command, limit)
}

/// Runs training steps in a new process. Returns the seconds from its start to the end of the
/// steps, and its peak memory in KiB.
fn train_in_new_process(
    launcher: &Launcher,
    caches: &Path,
    steps: u32,
    limit: Duration,
) -> Result<(f64, u64)> {
    let started = Instant::now();
    match launcher.start(caches)?.request(&format!("steps {steps}"), limit)? {
        Reply::Done { peak_kib } => Ok((started.elapsed().as_secs_f64(), peak_kib)),
        other => bail!("unexpected reply to `steps`: {other:?}"),
    }
}
