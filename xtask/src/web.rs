//! Forwards the commands for the pages of `web/` to `xtask-web`.
//!
//! `xtask-web` is a separate program because its dependencies take long to compile.

use xtask::EXIT_TOOL_MISSING;
use xtask::process::{cargo, root};

use crate::options::Options;
use crate::step::Outcome;

/// Runs the command `web`, `serve` or `test-web` with its arguments.
///
/// A missing tool counts as skipped: `xtask-web` has then printed what to install.
///
/// # Errors
///
/// Returns an error if cargo cannot be started or the command fails.
pub fn run(command: &str, args: &[String]) -> Result<Outcome, String> {
    let mut cargo = cargo(&["run", "--quiet", "--locked", "--package", "xtask-web", "--", command]);
    let status = cargo.args(args).current_dir(root()).status();
    match status.map_err(|error| format!("cargo could not be started: {error}"))?.code() {
        Some(0) => Ok(Outcome::Passed),
        Some(code) if code == i32::from(EXIT_TOOL_MISSING) => {
            Ok(Outcome::Skipped("a required tool is missing; see the error above".to_owned()))
        }
        _ => Err(format!("`cargo xtask {command}` failed")),
    }
}

/// Runs the step `web` of `cargo xtask test`.
pub fn step(_: &Options) -> Result<Outcome, String> {
    run("test-web", &[])
}
