//! Installs the npm packages that folders of this repository pin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{root, run_command, target_dir};

/// Installs the npm packages that the lock file in `folder` pins, unless the same lock file is
/// already installed. Returns the folder that contains `node_modules`, inside the target folder.
///
/// # Errors
///
/// Returns an error if a file cannot be written or `npm ci` fails, for example without a network.
pub fn install(folder: &str) -> Result<PathBuf, String> {
    let source = root().join(folder);
    let prefix = target_dir().join(folder.replace('/', "-"));
    let installed_lock = prefix.join("installed.json");
    let lock = source.join("package-lock.json");
    let same_content =
        |a: &Path, b: &Path| fs::read(a).is_ok_and(|a| fs::read(b).is_ok_and(|b| a == b));
    if same_content(&lock, &installed_lock) {
        return Ok(prefix);
    }
    println!("    installing the npm packages of {folder} into {}", prefix.display());
    let write_error =
        |error: std::io::Error| format!("cannot write to {}: {error}", prefix.display());
    fs::create_dir_all(&prefix).map_err(write_error)?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(source.join(file), prefix.join(file)).map_err(write_error)?;
    }
    let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
    let mut command = Command::new(npm);
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]);
    run_command(command.arg(&prefix)).map_err(|error| {
        format!(
            "cannot install the npm packages of {folder} ({error}); install Node.js 20 or later \
             with npm; the first run needs the network"
        )
    })?;
    fs::copy(&lock, &installed_lock).map_err(write_error)?;
    Ok(prefix)
}
