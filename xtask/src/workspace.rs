//! Checks of packages that are workspaces of their own, with their own lock files.

use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::process::{cargo, root, run_command, target_dir};

use crate::adapter;
use crate::options::Options;

/// Checks and tests each workspace in a folder of the repository.
///
/// # Errors
///
/// Returns an error if there is no software adapter, or a check or a test fails.
pub fn check_all(folder: &str) -> Result<(), String> {
    let options = Options::default();
    adapter::ensure(&options)?;
    let folder = root().join(folder);
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    // The other folders are what all of them share.
    let has_manifest = |path: &PathBuf| path.join("Cargo.toml").is_file();
    for workspace in entries.flatten().map(|entry| entry.path()).filter(has_manifest) {
        check(&workspace, &options)?;
    }
    Ok(())
}

/// Checks the format, the lints and the documentation of a workspace, and runs its tests on the software adapter.
///
/// # Errors
///
/// Returns an error if a check or a test fails.
pub fn check(folder: &Path, options: &Options) -> Result<(), String> {
    println!("{}", folder.display());
    let manifest = folder.join("Cargo.toml");
    let in_workspace = |args: &str| -> Command {
        let (name, rest) = args.split_once(' ').unwrap_or((args, ""));
        let mut command = cargo(&[name, "--manifest-path"]);
        command.arg(&manifest).args(rest.split(' ')).env("CARGO_TARGET_DIR", target_dir());
        command
    };
    run_command(&mut in_workspace("fmt --all --check"))?;
    run_command(&mut in_workspace("clippy --workspace --all-targets --locked -- -D warnings"))?;
    let mut docs = in_workspace("doc --workspace --no-deps --locked");
    run_command(docs.env("RUSTDOCFLAGS", "-D warnings"))?;
    let mut tests = in_workspace("test --workspace --locked");
    tests.envs(adapter::environment(options)).env("BURN_WGSL_DEVICE", "software");
    run_command(&mut tests)
}
