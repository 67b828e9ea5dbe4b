//! Runs other programs in the repository root, with inherited output streams.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the repository root: the closest parent folder of this package that contains
/// `Cargo.lock`.
///
/// Cargo sets `CARGO_MANIFEST_DIR` at run time. The path from compile time is only a fallback: it
/// is stale if the repository was moved together with its target folder.
pub fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package
        .ancestors()
        .find(|folder| folder.join("Cargo.lock").is_file())
        .map_or(package.clone(), Path::to_path_buf)
}

/// Returns cargo's target folder, which also holds the output files of the steps.
pub fn target_dir() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(folder)
}

/// Returns a command that runs the cargo that started this program.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Prints a command, runs it in the repository root and waits for it.
///
/// # Errors
///
/// Returns an error if the command cannot be started or exits with a failure.
pub fn run_command(command: &mut Command) -> Result<(), String> {
    command.current_dir(root());
    let line = command_line(command);
    println!("    $ {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` failed: {status}")),
        Err(error) => Err(format!("`{line}` could not be started: {error}")),
    }
}

/// Formats a command as a shell line.
fn command_line(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(key, value)| Some(format!("{}={}", key.to_string_lossy(), quote(value?))));
    let program = Path::new(command.get_program()).file_stem();
    let program = quote(program.unwrap_or(command.get_program()));
    let args = command.get_args().map(quote);
    variables.chain([program]).chain(args).collect::<Vec<_>>().join(" ")
}

/// Puts an argument in quotes if it is empty or contains whitespace.
fn quote(arg: &OsStr) -> String {
    let arg = arg.to_string_lossy();
    if arg.is_empty() || arg.contains(char::is_whitespace) {
        format!("'{arg}'")
    } else {
        arg.into_owned()
    }
}
