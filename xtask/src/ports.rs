//! `cargo xtask ports`: checks and tests the crates for other versions of Burn in `ports/`.
//!
//! Each is a workspace of its own, with its own lock file: it patches one of Burn's packages.

use std::path::PathBuf;

use xtask::process::root;

use crate::options::Options;
use crate::{adapter, workspace};

/// Runs the command.
///
/// # Errors
///
/// Returns an error if there is no software adapter, or a check or a test fails.
pub fn run() -> Result<(), String> {
    let options = Options::default();
    adapter::ensure(&options)?;
    let folder = root().join("ports");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    // The other folders are what all of them share.
    let has_manifest = |path: &PathBuf| path.join("Cargo.toml").is_file();
    for port in entries.flatten().map(|entry| entry.path()).filter(has_manifest) {
        workspace::check(&port, &options)?;
    }
    Ok(())
}
