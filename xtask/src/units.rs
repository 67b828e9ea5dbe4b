//! The step `units` of `cargo xtask test`: products and attention with matrix units, on the one
//! software adapter that has them.

use crate::adapter::required_device;
use crate::gpus::pretended::{PACKAGES, driver_command};
use crate::options::Options;
use crate::packages::Packages;
use crate::reached;
use crate::step::Outcome;
use crate::vulkan::build::{self, Run};
use xtask::process::{run_command, target_dir};

/// The test modules that run with the tests of each, or with all, and whether ignored ones are among them. The part of
/// the case list: integers do not use matrix units.
const RUNS: [(&str, &[&str], bool); 4] = [
    ("matrix_units", &[], false),
    ("matrix_units", &["convolutions_without_a_uniform_tap_replace_those_with_one"], true),
    ("kernels::types", &["f16_and_bf16_match_burn_flex"], false),
    ("fusion", &["autocast_adds_few_launches"], false),
];
const CASES: &str = "matmul,linear,conv,attention";

/// Runs the step. Debian's newest lavapipe is unpacked and not installed.
///
/// # Errors
///
/// Returns an error if the tests do not compile, or fail.
pub fn step(options: &Options) -> Result<Outcome, String> {
    if required_device(options) != Some("software") {
        return Ok(Outcome::Skipped("this step needs the software adapter".to_owned()));
    }
    let packages = match Packages::unpack("drivers", &PACKAGES) {
        Ok(packages) => packages,
        Err(reason) => {
            return Ok(Outcome::Skipped(format!("no adapter with matrix units: {reason}")));
        }
    };
    for (name, tests, ignored) in RUNS {
        println!("    {name}");
        let [run] = <[Run; 1]>::try_from(build::runs(&[name.to_owned()])?)
            .map_err(|runs| format!("`{name}` names {} test modules", runs.len()))?;
        let mut command = driver_command(&packages, "lavapipe", "lvp", &run.path, &[])?;
        match tests {
            [] => command.arg(run.test("")),
            tests => command.args(tests.iter().map(|test| run.test(test))),
        };
        command.args(ignored.then_some("--ignored"));
        command.env("BURN_WGSL_AS_GPU", "1").env("BURN_WGSL_CACHE", "off");
        command.env("BURN_WGSL_TUNING", "off").env(reached::VARIABLE, reached::file());
        // The programs compile the same kernels, some of which take ten seconds.
        command.env_remove("MESA_SHADER_CACHE_DISABLE");
        command.env("MESA_SHADER_CACHE_DIR", target_dir().join("units-cache"));
        // Without this variable, tests without matrix units are skipped.
        command.env("BURN_WGSL_TEST_REQUIRE", "matrix units");
        run_command(command.env("BURN_WGSL_TEST_CASES", CASES))?;
    }
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_modules;

    #[test]
    fn every_run_has_its_tests() {
        let modules = test_modules::all().expect("the tests are there");
        for (name, tests, _) in RUNS {
            let module = modules.iter().find(|module| module.is_named(name));
            let module = module.unwrap_or_else(|| panic!("there is no module {name}"));
            assert!(tests.iter().all(|test| module.has_test(test)), "{name}: {tests:?}");
        }
    }
}
