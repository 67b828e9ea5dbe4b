//! Where things are, and how other programs are run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Something that has to be installed first: nothing is known about the pages.
#[derive(Debug)]
pub struct Missing(pub String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// The repository's root: two folders above this package.
pub fn root() -> PathBuf {
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.ancestors().nth(2).map_or(package.clone(), Path::to_path_buf)
}

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The built pages.
pub fn dist() -> PathBuf {
    root().join("web/dist")
}

/// Runs a program in the root, with its output passed through.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let shown: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    println!("    $ {name} {}", shown.join(" "));
    let status = command.current_dir(root()).status().with_context(|| format!("`{name}` could not be started"))?;
    if !status.success() {
        bail!("`{name}` ended with {status}");
    }
    Ok(())
}

/// Installs the npm packages that `folder` of the repository pins, unless these very versions are there. Returns where.
pub fn npm_packages(folder: &str) -> Result<PathBuf> {
    let from = root().join(folder);
    let home = target().join(folder.replace('/', "-"));
    let done = home.join("installed.json");
    let lock = from.join("package-lock.json");
    let same = |a: &Path, b: &Path| std::fs::read(a).is_ok_and(|a| std::fs::read(b).is_ok_and(|b| a == b));
    if !same(&lock, &done) {
        std::fs::create_dir_all(&home)?;
        for file in ["package.json", "package-lock.json"] {
            std::fs::copy(from.join(file), home.join(file)).with_context(|| format!("{folder}/{file}"))?;
        }
        let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
        let mut command = Command::new(npm);
        command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]).arg(&home);
        run(&mut command).map_err(|error| {
            let advice = "install Node.js 20 or later with npm; the first time needs the network";
            Missing(format!("npm packages of {folder} are needed ({error:#}): {advice}"))
        })?;
        std::fs::copy(&lock, &done)?;
    }
    Ok(home.join("node_modules"))
}
