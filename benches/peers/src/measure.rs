//! Rounds: the peers take turns, so that a machine whose speed drifts slows all of them alike.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use peer_protocol::Reply;

use crate::peers::Peer;
use crate::process::{Launcher, Process};
use crate::workloads::{Kind, Workload};

/// What one peer did at one workload.
#[derive(Default)]
pub struct Outcome {
    /// In the workload's unit.
    pub samples: Vec<f64>,
    /// The mean of the result's absolute values.
    pub value: Option<f64>,
    /// What its warm-up took, in seconds.
    pub warm_up: Option<f64>,
    /// Why there are no more samples.
    pub failure: Option<String>,
}

/// The peers' processes over a run.
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

    /// All rounds of a workload: one outcome per peer.
    pub fn take(&mut self, workload: &Workload) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = self.peers.iter().map(|_| Outcome::default()).collect();
        let rounds = match workload.kind {
            Kind::FirstCold | Kind::Peak => 1,
            Kind::Op | Kind::Step | Kind::FirstWarm => self.rounds,
        };
        if !matches!(workload.kind, Kind::Op | Kind::Step) {
            // Processes that wait would still hold memory.
            self.peers.iter_mut().for_each(|(_, process)| *process = None);
        }
        for round in 0..rounds as usize {
            for turn in 0..self.peers.len() {
                // Another one begins each round: nobody always follows the same neighbour's heat.
                let index = (round + turn) % self.peers.len();
                if outcomes[index].failure.is_none()
                    && let Err(why) = self.turn(index, workload, &mut outcomes[index])
                {
                    self.peers[index].1 = None;
                    outcomes[index].failure = Some(format!("{why:#}"));
                }
            }
        }
        outcomes
    }

    fn turn(&mut self, index: usize, workload: &Workload, outcome: &mut Outcome) -> Result<()> {
        let (limit, steps) = (self.limit, self.steps);
        let (launcher, process) = &mut self.peers[index];
        let first = launcher.caches.join("first-step");
        match workload.kind {
            Kind::Op | Kind::Step => {
                match ask(launcher, process, &format!("run {}", workload.name), limit)? {
                    Reply::Times(times) => {
                        outcome.samples.extend(times.ms);
                        outcome.value = outcome.value.or(times.value);
                        outcome.warm_up = outcome.warm_up.or(times.warm_up);
                    }
                    other => bail!("an unexpected answer: {other:?}"),
                }
            }
            Kind::FirstCold => {
                if first.exists() {
                    std::fs::remove_dir_all(&first)?;
                }
                outcome.samples.push(after_start(launcher, &first, 1, limit)?.0);
            }
            Kind::FirstWarm => {
                if !first.exists() {
                    after_start(launcher, &first, 1, limit)?;
                }
                outcome.samples.push(after_start(launcher, &first, 1, limit)?.0);
            }
            Kind::Peak => match after_start(launcher, &launcher.caches, steps, limit)?.1 {
                0 => bail!("this system does not tell the peak of a process's memory"),
                kib => outcome.samples.push(kib as f64 / 1024.0),
            },
        }
        Ok(())
    }
}

/// Asks the peer's process, starting it if it is not there.
fn ask(
    launcher: &Launcher,
    process: &mut Option<Process>,
    command: &str,
    limit: Duration,
) -> Result<Reply> {
    let running = match process {
        Some(running) => running,
        None => process.insert(launcher.start(&launcher.caches)?),
    };
    running.ask(command, limit)
}

/// A process of its own for some training steps: seconds from its start to their end, and its peak of memory in KiB.
fn after_start(
    launcher: &Launcher,
    caches: &Path,
    steps: u32,
    limit: Duration,
) -> Result<(f64, u64)> {
    let started = Instant::now();
    match launcher.start(caches)?.ask(&format!("steps {steps}"), limit)? {
        Reply::Done { peak_kib } => Ok((started.elapsed().as_secs_f64(), peak_kib)),
        other => bail!("an unexpected answer: {other:?}"),
    }
}
