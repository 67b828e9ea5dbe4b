//! The tests of the workspace, on the devices of the options.

use std::process::Command;

use xtask::process::cargo;

use crate::adapter::{self, required_device};
use crate::options::Options;
use crate::reached;

/// Returns a `cargo test` command for the devices of the options. `tests` are its arguments that
/// select tests; without any, all tests run.
pub fn cargo_test(options: &Options, tests: &[&str]) -> Command {
    let mut command = cargo(&["test", "--workspace", "--all-features", "--locked"]);
    command.args(tests);
    // Settings in the user's shell and cached tuning results must not affect the tests.
    let settings = "DEVICE TILING WARM AS_GPU NO_SUBGROUPS CHECKED INDEX_REPORTS FUSION PRINT_KERNELS \
         TEST_CASES TEST_VALUES WINOGRAD MATRIX_UNITS AUTOCAST MATMUL_PRECISION DEBUG";
    for name in settings.split(' ') {
        command.env_remove(format!("BURN_WGSL_{name}"));
    }
    command.env("BURN_WGSL_TUNING", "off").env(reached::VARIABLE, reached::file());
    command.envs(adapter::environment(options));
    if let Some(selector) = required_device(options) {
        // Without this variable, tests of a missing device are skipped.
        command.env("BURN_WGSL_TEST_REQUIRE", selector);
    }
    command
}
