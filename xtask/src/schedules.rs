//! The step `schedules` of `cargo xtask test`, on request: what threads share, with many orders of their steps.

use std::process::Command;

use xtask::process::{root, run_command};

use crate::options::Options;
use crate::step::Outcome;
use crate::vulkan::build::built;

/// Builds the unit tests of the library with shuttle's locks (`src/runtime/sync.rs`), and runs those in modules named
/// `schedules`. No other crate is built again.
///
/// # Errors
///
/// Returns an error if a test fails: it prints the schedule.
pub fn step(_: &Options) -> Result<Outcome, String> {
    let args = "rustc --profile test --lib --all-features --locked -- --cfg shuttle";
    let programs = built(&args.split(' ').collect::<Vec<_>>(), &root().join("src"))?;
    for program in &programs {
        let mut list = Command::new(&program.path);
        let list =
            list.args(["schedules", "--list"]).output().map_err(|error| error.to_string())?;
        if !String::from_utf8_lossy(&list.stdout).contains(": test") {
            return Err("there are no tests in modules named `schedules`".to_owned());
        }
        run_command(Command::new(&program.path).arg("schedules").current_dir(root()))?;
    }
    match programs.len() {
        1 => Ok(Outcome::Passed),
        count => Err(format!("cargo built {count} programs, not one")),
    }
}
