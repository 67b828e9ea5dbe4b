//! The commands for the pages of `web/`, which are a program of their own: what they need takes long to compile.

use crate::run::{cargo, run as run_command};
use crate::test::{Done, Options};

/// Runs `cargo xtask web`, `serve` or `test-web`.
pub fn run(command: &str, options: &[String]) -> Result<(), String> {
    let mut cargo = cargo(&["run", "--quiet", "--locked", "--package", "xtask-web", "--", command]);
    run_command(cargo.args(options))
}

/// The step: pages are built and used in a browser.
pub fn step(_: &Options) -> Result<Done, String> {
    run("test-web", &[]).map(|()| Done::Passed)
}
