//! Every shader through Tint, the WGSL compiler of Chromium: what naga takes, a browser may refuse.
//!
//! Tint comes in the npm package `webgpu`, pinned in `xtask/tint/` and installed into the target folder.

use crate::test::{Done, Options};
use std::fs;
use std::io;
use std::process::Command;

use xtask::npm;
use xtask::run::{cargo, root, run as run_command, target};

/// The oldest Node.js that the package runs on.
const NODE: u32 = 18;

/// Why there is no verdict of "all compile".
pub enum Problem {
    /// The compiler is not here: nothing is known about the shaders.
    NoCompiler(String),
    /// A shader does not compile, or they could not be written.
    Failed(String),
}

/// The step: a machine without Node.js, or without a network when the package is first needed, goes without.
pub fn step(_: &Options) -> Result<Done, String> {
    match check() {
        Ok(()) => Ok(Done::Passed),
        Err(Problem::NoCompiler(why)) => Ok(Done::Skipped(why)),
        Err(Problem::Failed(why)) => Err(why),
    }
}

/// Writes every variant as browsers get it and has Tint compile each.
pub fn check() -> Result<(), Problem> {
    let shaders = target().join("tint");
    let prepare = || {
        // Shaders of an earlier run must not pass, or fail, for this one's.
        if shaders.exists() {
            fs::remove_dir_all(&shaders)?;
        }
        fs::create_dir_all(&shaders)
    };
    prepare().map_err(|error: io::Error| {
        Problem::Failed(format!("{} cannot be written: {error}", shaders.display()))
    })?;
    find_node().map_err(Problem::NoCompiler)?;
    let check = npm::install("xtask/tint").map_err(Problem::NoCompiler)?.join("check.js");
    // Node.js looks for packages beside the script.
    fs::copy(root().join("xtask/tint/check.js"), &check).map_err(|error| {
        Problem::Failed(format!("{} cannot be written: {error}", check.display()))
    })?;

    let words = "test --workspace --all-features --locked --test variants -- --exact every_variant_is_written_for_browsers";
    let mut command = cargo(&words.split(' ').collect::<Vec<_>>());
    run_command(command.env("BURN_WGSL_SHADERS", &shaders)).map_err(Problem::Failed)?;
    let mut node = Command::new("node");
    run_command(node.arg(check).arg(&shaders)).map_err(Problem::Failed)
}

fn find_node() -> Result<(), String> {
    let output = Command::new("node")
        .arg("--version")
        .output()
        .map_err(|error| format!("Tint runs in Node.js, and `node` cannot be started: {error}"))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match major(&version) {
        Some(major) if major >= NODE => Ok(()),
        _ => Err(format!(
            "Tint needs Node.js {NODE} or later, and `node --version` says {version:?}"
        )),
    }
}

/// The first number of a version such as `v20.1.0`.
fn major(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split('.').next()?.parse().ok()
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(major("v20.20.2"), Some(20));
        assert_eq!(major(""), None);
    }
}
