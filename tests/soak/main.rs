//! Long runs: results stay right and memory stays flat. Speed is printed.
//!
//! The variable `BURN_WGSL_SOAK_MINUTES` sets the time of each; `cargo xtask soak` runs them for an hour.

#[path = "../common/mod.rs"]
mod common;

#[path = "../training/cnn.rs"]
mod cnn;
mod tensors;
mod workers;

use std::time::Duration;

/// The parts of a run. Memory is compared between them.
const PERIODS: usize = 10;
/// How much a process may grow that allocates in several threads.
const GROWTH: usize = 64 << 20;
/// How long a run takes unless it is told otherwise.
const DEFAULT_MINUTES: f64 = 0.4;

/// Returns how long a run takes.
fn minutes() -> f64 {
    let minutes = std::env::var("BURN_WGSL_SOAK_MINUTES").ok();
    minutes.map_or(DEFAULT_MINUTES, |minutes| {
        minutes.parse().expect("BURN_WGSL_SOAK_MINUTES is a number")
    })
}

/// Returns the time of a part.
fn period() -> Duration {
    Duration::from_secs_f64(minutes() * 60.0 / PERIODS as f64)
}
