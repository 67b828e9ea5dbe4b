//! The steps of `cargo xtask test` and their outcomes.

use crate::options::Options;

/// One step of `cargo xtask test`.
pub struct Step {
    /// The name that `--only` and `--skip` accept.
    pub name: &'static str,
    /// What the step checks, as one line of output.
    pub description: &'static str,
    /// Runs the step. The error says why the step failed.
    pub run: fn(&Options) -> Result<Outcome, String>,
}

/// The outcome of a step that did not fail.
pub enum Outcome {
    Passed,
    /// The step cannot run on this machine or with these options. Holds the reason.
    Skipped(String),
}
