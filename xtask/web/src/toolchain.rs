//! A Rust that compiles for browsers.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::places::{Missing, root, run};

/// Browsers.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// Which compiler is used.
pub struct Toolchain {
    /// A compiler in place of cargo's own.
    rustc: Option<PathBuf>,
}

impl Toolchain {
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        if let Some(rustc) = &self.rustc {
            cargo.env("RUSTC", rustc);
        }
        cargo
    }
}

/// Finds one: cargo's own compiler if it has the target's standard library or rustup can fetch that, else Debian's.
pub fn find() -> Result<Toolchain> {
    if has_target("rustc") {
        return Ok(Toolchain { rustc: None });
    }
    if run(Command::new("rustup").args(["target", "add", TARGET])).is_ok() && has_target("rustc") {
        return Ok(Toolchain { rustc: None });
    }
    let missing = format!("a compiler for browsers is needed: `rustup target add {TARGET}`");
    if !xtask::debian::is_debian() {
        return Err(Missing(missing).into());
    }
    let script = root().join("xtask/web/debian-wasm.sh");
    println!("    rustup has no {TARGET} here: Debian's compiler is tried");
    let home = crate::places::target().join("debian-wasm");
    let rustc = home.join("rustc");
    if !has_target(&rustc.display().to_string())
        && let Err(error) = run(Command::new("bash").arg(script).arg(&home))
    {
        return Err(
            Missing(format!("{missing} (Debian's own did not do either: {error:#})")).into()
        );
    }
    Ok(Toolchain { rustc: Some(rustc) })
}

/// Whether a compiler has the target's standard library.
fn has_target(rustc: &str) -> bool {
    let mut ask = Command::new(rustc);
    ask.args(["--target", TARGET, "--print", "target-libdir"]).stderr(Stdio::null());
    ask.output().is_ok_and(|output| {
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        output.status.success() && folder.join("..").exists() && has_std(&folder)
    })
}

fn has_std(folder: &std::path::Path) -> bool {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("libstd-"))
}
