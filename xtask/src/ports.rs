//! `cargo xtask ports`: checks and tests the crates for other versions of Burn in `ports/`.
//!
//! Each is a workspace of its own, with its own lock file: it patches one of Burn's packages.

use std::process::Command;

use xtask::process::{cargo, root, run_command, target_dir};

use crate::adapter;
use crate::options::Options;

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
    for port in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        println!("{}", port.display());
        let manifest = port.join("Cargo.toml");
        let in_port = |args: &str| -> Command {
            let (name, rest) = args.split_once(' ').unwrap_or((args, ""));
            let mut command = cargo(&[name, "--manifest-path"]);
            command.arg(&manifest).args(rest.split(' ')).env("CARGO_TARGET_DIR", target_dir());
            command
        };
        run_command(&mut in_port("fmt --all --check"))?;
        run_command(&mut in_port("clippy --workspace --all-targets --locked -- -D warnings"))?;
        let mut docs = in_port("doc --workspace --no-deps --locked");
        run_command(docs.env("RUSTDOCFLAGS", "-D warnings"))?;
        let mut tests = in_port("test --workspace --locked");
        tests.envs(adapter::environment(&options)).env("BURN_WGSL_DEVICE", "software");
        run_command(&mut tests)?;
    }
    Ok(())
}
