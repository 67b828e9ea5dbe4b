//! Compiles every shader with Tint, Chromium's WGSL compiler. Tint rejects some shaders that naga
//! accepts.
//!
//! Tint is part of the npm package `webgpu`, which is pinned in `xtask/tint/` and installed into
//! the target folder.

use std::fs;
use std::process::Command;

use xtask::npm;
use xtask::process::{root, run_command, target_dir};

use crate::options::Options;
use crate::shaders::write_with_test;
use crate::step::Outcome;

/// The oldest major version of Node.js that the npm package supports.
const MIN_NODE_VERSION: u32 = 18;

/// Why the check did not pass.
pub enum TintError {
    /// Tint cannot be run on this machine, so no shader was checked.
    Unavailable(String),
    /// A shader does not compile, or the shaders could not be written.
    Failed(String),
}

/// Runs the step `tint` of `cargo xtask test`.
///
/// The step is skipped without Node.js, and without a network until the package is installed.
pub fn step(_: &Options) -> Result<Outcome, String> {
    match check() {
        Ok(()) => Ok(Outcome::Passed),
        Err(TintError::Unavailable(reason)) => Ok(Outcome::Skipped(reason)),
        Err(TintError::Failed(reason)) => Err(reason),
    }
}

/// Writes every shader variant that browsers use to a folder and compiles each with Tint.
pub fn check() -> Result<(), TintError> {
    let shaders = target_dir().join("tint");
    require_node().map_err(TintError::Unavailable)?;
    let script = npm::install("xtask/tint").map_err(TintError::Unavailable)?.join("check.js");
    // Node.js resolves packages relative to the script, so the script goes next to `node_modules`.
    fs::copy(root().join("xtask/tint/check.js"), &script).map_err(|error| {
        TintError::Failed(format!("cannot write {}: {error}", script.display()))
    })?;

    write_with_test(&shaders, "every_variant_is_written_for_browsers")
        .map_err(TintError::Failed)?;
    let mut node = Command::new("node");
    run_command(node.arg(script).arg(&shaders)).map_err(TintError::Failed)
}

/// Checks that a supported version of Node.js is installed.
fn require_node() -> Result<(), String> {
    let output = Command::new("node")
        .arg("--version")
        .output()
        .map_err(|error| format!("Tint needs Node.js, but `node` could not be started: {error}"))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match major_version(&version) {
        Some(major) if major >= MIN_NODE_VERSION => Ok(()),
        _ => Err(format!(
            "Tint needs Node.js {MIN_NODE_VERSION} or later, but `node --version` printed \
             {version:?}"
        )),
    }
}

/// Returns the major version of a version string such as `v20.1.0`.
fn major_version(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_version_is_parsed() {
        assert_eq!(major_version("v20.20.2"), Some(20));
        assert_eq!(major_version(""), None);
    }
}
