//! Paths and external programs, and the error for a program that is not installed.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Error, Result};
pub use xtask::process::{root, target_dir};

/// A required program is not installed. Holds the message with what to install.
#[derive(Debug)]
pub struct ToolMissing(pub String);

impl std::fmt::Display for ToolMissing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ToolMissing {}

/// Runs a program in the repository root, as [`xtask::process::run_command`].
pub fn run_command(command: &mut Command) -> Result<()> {
    xtask::process::run_command(command).map_err(Error::msg)
}

/// Installs the npm packages that `folder` pins and returns the path of `node_modules`.
pub fn npm_packages(folder: &str) -> Result<PathBuf> {
    Ok(xtask::npm::install(folder).map_err(ToolMissing)?.join("node_modules"))
}
