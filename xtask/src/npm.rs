//! Packages of Node.js, pinned in folders of this repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{root, run, target};

/// Installs the packages that `folder` pins, unless these very versions are there. Returns the folder that has `node_modules`; `Err`
/// says what is missing.
pub fn install(folder: &str) -> Result<PathBuf, String> {
    let from = root().join(folder);
    let home = target().join(folder.replace('/', "-"));
    let done = home.join("installed.json");
    let lock = from.join("package-lock.json");
    let same = |a: &Path, b: &Path| fs::read(a).is_ok_and(|a| fs::read(b).is_ok_and(|b| a == b));
    if same(&lock, &done) {
        return Ok(home);
    }
    println!("    installing the npm packages of {folder} into {}", home.display());
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}", home.display());
    fs::create_dir_all(&home).map_err(failed)?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(from.join(file), home.join(file)).map_err(failed)?;
    }
    let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
    let mut command = Command::new(npm);
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]);
    run(command.arg(&home)).map_err(|why| {
        format!("the npm packages of {folder} are needed: install Node.js 20 or later with npm; the first time needs the network ({why})")
    })?;
    fs::copy(&lock, &done).map_err(failed)?;
    Ok(home)
}
