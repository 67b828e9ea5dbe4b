//! The commands for the pages of `web/`, which are a program of their own: what they need takes long to compile.

use crate::test::{Done, Options};

use xtask::MISSING;
use xtask::run::{cargo, root};

/// Runs `cargo xtask web`, `serve` or `test-web`. Without what it needs, it says what to install.
pub fn run(command: &str, options: &[String]) -> Result<Done, String> {
    let mut cargo = cargo(&["run", "--quiet", "--locked", "--package", "xtask-web", "--", command]);
    let status = cargo.args(options).current_dir(root()).status();
    match status.map_err(|error| format!("cargo could not be started: {error}"))?.code() {
        Some(0) => Ok(Done::Passed),
        Some(code) if code == i32::from(MISSING) => {
            Ok(Done::Skipped("something has to be installed first: see above".to_owned()))
        }
        _ => Err(format!("`cargo xtask {command}` failed")),
    }
}

/// The step of `cargo xtask test`.
pub fn step(_: &Options) -> Result<Done, String> {
    run("test-web", &[])
}
