//! Running other programs from the repository's root, with their output passed straight through.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root: the folder of the lock file. Cargo says at run time where the package that runs lies; the compiled-in path
/// would be stale in a clone that was moved together with its target folder.
pub fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package
        .ancestors()
        .find(|folder| folder.join("Cargo.lock").is_file())
        .map_or(package.clone(), Path::to_path_buf)
}

/// Where cargo puts what it builds, and where the steps keep their own files.
pub fn target() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(folder)
}

/// The cargo that started us, with these words.
pub fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words);
    command
}

/// Shows the command, runs it in the root and waits; `Err` says in words what went wrong.
pub fn run(command: &mut Command) -> Result<(), String> {
    command.current_dir(root());
    let shown = show(command);
    println!("    $ {shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` ended with {status}")),
        Err(error) => Err(format!("`{shown}` could not be started: {error}")),
    }
}

/// The command as one could type it.
fn show(command: &Command) -> String {
    let settings = command
        .get_envs()
        .filter_map(|(key, value)| Some(format!("{}={}", key.to_string_lossy(), quoted(value?))));
    let program = Path::new(command.get_program()).file_stem();
    let program = quoted(program.unwrap_or(command.get_program()));
    let words = command.get_args().map(quoted);
    settings.chain([program]).chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.is_empty() || word.contains(char::is_whitespace) {
        format!("'{word}'")
    } else {
        word.into_owned()
    }
}
