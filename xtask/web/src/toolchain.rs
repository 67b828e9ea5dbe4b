//! Finds or installs a Rust compiler for WebAssembly.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::tools::{ToolMissing, root, run_command, target_dir};

/// The compilation target of the pages.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// A Rust compiler for WebAssembly.
pub struct Toolchain {
    /// The compiler to use instead of cargo's default.
    rustc: Option<PathBuf>,
}

impl Toolchain {
    /// Returns a cargo command that uses this compiler.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        if let Some(rustc) = &self.rustc {
            cargo.env("RUSTC", rustc);
        }
        cargo
    }
}

/// Returns the default compiler if it has, or rustup can install, the standard library of the
/// target. Otherwise returns Debian's compiler, which is downloaded if needed.
///
/// # Errors
///
/// Returns [`ToolMissing`] if there is no compiler for the target.
pub fn find() -> Result<Toolchain> {
    if has_target("rustc") {
        return Ok(Toolchain { rustc: None });
    }
    if run_command(Command::new("rustup").args(["target", "add", TARGET])).is_ok()
        && has_target("rustc")
    {
        return Ok(Toolchain { rustc: None });
    }
    let message = format!("no Rust compiler for {TARGET}; run `rustup target add {TARGET}`");
    if !xtask::debian::is_debian() {
        return Err(ToolMissing(message).into());
    }
    let script = root().join("xtask/web/debian-wasm.sh");
    println!("    rustup cannot install {TARGET}; trying Debian's compiler");
    let folder = target_dir().join("debian-wasm");
    let rustc = folder.join("rustc");
    if !has_target(&rustc.display().to_string())
        && let Err(error) = run_command(Command::new("bash").arg(script).arg(&folder))
    {
        return Err(ToolMissing(format!("{message} (Debian's compiler failed: {error:#})")).into());
    }
    Ok(Toolchain { rustc: Some(rustc) })
}

/// Returns whether a compiler has the standard library of the target.
fn has_target(rustc: &str) -> bool {
    let mut command = Command::new(rustc);
    command.args(["--target", TARGET, "--print", "target-libdir"]).stderr(Stdio::null());
    command.output().is_ok_and(|output| {
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        output.status.success() && folder.join("..").exists() && has_std(&folder)
    })
}

/// Returns whether a library folder of a compiler contains the standard library.
fn has_std(folder: &Path) -> bool {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.map(|file| file.file_name()).any(|name| name.to_string_lossy().starts_with("libstd-"))
}
