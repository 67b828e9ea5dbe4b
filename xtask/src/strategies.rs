//! The step `strategies` of `cargo xtask test`, on request: every strategy of products, and the kernels
//! for GPUs in every element type, in models and under autocast.

use xtask::process::run_command;

use crate::adapter::required_device;
use crate::cargo_test::cargo_test;
use crate::options::Options;
use crate::step::Outcome;

/// The strategies of `BURN_WGSL_TILING`, and whether they are for GPUs.
const TILINGS: [(&str, bool); 5] = [
    ("scalar", false),
    ("vec4", false),
    ("tiled64", true),
    ("tiled64x128", true),
    ("tiled128", true),
];

/// Runs the step, for half an hour or more.
///
/// # Errors
///
/// Returns an error if a test fails.
pub fn step(options: &Options) -> Result<Outcome, String> {
    if required_device(options) != Some("software") {
        return Ok(Outcome::Skipped("this step needs the software adapter".to_owned()));
    }
    let programs = ["types", "models", "autocast", "scaler", "chains", "sweeps"];
    let programs = programs.map(|test| ["--test", test]);
    let mut command = cargo_test(options, programs.as_flattened());
    run_command(command.env("BURN_WGSL_AS_GPU", "1"))?;
    for (tiling, for_gpus) in TILINGS {
        let cases = cargo_test(options, &["--test", "ops", "--test", "types"]);
        let models = cargo_test(options, &["--test", "chains", "--test", "models"]);
        for mut command in [cases, models] {
            command.env("BURN_WGSL_TILING", tiling).env("PROPTEST_CASES", "50");
            if for_gpus {
                command.env("BURN_WGSL_AS_GPU", "1");
            }
            run_command(command.env("BURN_WGSL_TEST_CASES", "matmul,linear,conv"))?;
        }
    }
    Ok(Outcome::Passed)
}
