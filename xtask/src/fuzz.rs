//! The step `fuzz` of `cargo xtask test`, on request: random inputs at the borders of the crate, and random programs.

use xtask::process::{root, run_command};

use crate::adapter::required_device;
use crate::cargo_test::cargo_test;
use crate::options::Options;
use crate::step::Outcome;
use crate::test_modules;

/// The targets of `tests/borders/fuzz.rs`, which each runs for a minute.
const TARGETS: [&str; 5] = [
    "tensor_data_is_refused_or_read_back",
    "quantised_data_is_refused_or_dequantised",
    "records_are_refused_or_loaded",
    "device_selectors_are_refused_or_resolved",
    "kernels_of_any_text_are_refused_or_run",
];
/// The targets in the library: files of the cache.
const LIBRARY_TARGETS: [&str; 2] =
    ["files_with_any_contents_are_ignored", "files_with_any_contents_have_no_more_than_choices"];

/// Runs the step, for ten minutes or more. `BOLERO_RANDOM_TEST_TIME_MS` sets the time of a target.
///
/// # Errors
///
/// Returns an error if a target fails: it prints the input and its seed.
pub fn step(options: &Options) -> Result<Outcome, String> {
    if required_device(options) != Some("software") {
        return Ok(Outcome::Skipped("this step needs the software adapter".to_owned()));
    }
    let time = std::env::var("BOLERO_RANDOM_TEST_TIME_MS").unwrap_or_else(|_| "60000".to_owned());
    let run = |arguments: &[&str], target: &str| {
        let mut command = cargo_test(options, &[arguments, &[target]].concat());
        command.env("BOLERO_RANDOM_ITERATIONS", u32::MAX.to_string());
        run_command(command.env("BOLERO_RANDOM_TEST_TIME_MS", &time))
    };
    let sources =
        ["tests/borders/fuzz.rs", "src/runtime/choices.rs", "src/runtime/pipeline_cache.rs"];
    let sources = sources.map(|file| std::fs::read_to_string(root().join(file)));
    let is_there = |target: &str| {
        let name = format!("fn {target}(");
        sources.iter().flatten().any(|source| source.contains(&name))
    };
    if let Some(target) = TARGETS.iter().chain(&LIBRARY_TARGETS).find(|target| !is_there(target)) {
        return Err(format!("there is no target `{target}`"));
    }
    for target in TARGETS {
        run(&["--test", "borders"], target)?;
    }
    for target in LIBRARY_TARGETS {
        run(&["--package", "burn-wgsl", "--lib"], target)?;
    }
    test_modules::run(options, &["kernels::chains"], &[("PROPTEST_CASES", "3000")])?;
    Ok(Outcome::Passed)
}
