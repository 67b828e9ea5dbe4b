//! The step `strategies` of `cargo xtask test`, on request: every strategy of products, and the kernels
//! for GPUs in every element type, in models and under autocast.

use crate::adapter::required_device;
use crate::options::Options;
use crate::step::Outcome;
use crate::test_modules;

/// The strategies of `BURN_WGSL_TILING`, and whether they are for GPUs.
const TILINGS: [(&str, bool); 5] = [
    ("scalar", false),
    ("vec4", false),
    ("tiled64", true),
    ("tiled64x128", true),
    ("tiled128", true),
];

/// The tests of the kernels for GPUs in every element type, in models and under autocast.
const MODULES: [&str; 6] = [
    "kernels::types",
    "training::models",
    "training::autocast",
    "training::scaler",
    "kernels::chains",
    "sweeps",
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
    let as_gpu = ("BURN_WGSL_AS_GPU", "1");
    test_modules::run(options, &MODULES, &[as_gpu])?;
    for (tiling, for_gpus) in TILINGS {
        let mut variables = vec![
            ("BURN_WGSL_TILING", tiling),
            ("PROPTEST_CASES", "50"),
            ("BURN_WGSL_TEST_CASES", "matmul,linear,conv"),
        ];
        variables.extend(for_gpus.then_some(as_gpu));
        let tests = ["kernels::ops", "kernels::types", "kernels::chains", "training::models"];
        test_modules::run(options, &tests, &variables)?;
    }
    Ok(Outcome::Passed)
}
