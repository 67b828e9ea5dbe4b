//! Where things are, and how other programs are run.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Error, Result};
pub use xtask::run::{root, target};

/// Something that has to be installed first: nothing is known about the pages.
#[derive(Debug)]
pub struct Missing(pub String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// The built pages.
pub fn dist() -> PathBuf {
    root().join("web/dist")
}

/// Runs a program in the root, with its output passed through.
pub fn run(command: &mut Command) -> Result<()> {
    xtask::run::run(command).map_err(Error::msg)
}

/// The npm packages that `folder` of the repository pins.
pub fn npm_packages(folder: &str) -> Result<PathBuf> {
    Ok(xtask::npm::install(folder).map_err(Missing)?.join("node_modules"))
}
