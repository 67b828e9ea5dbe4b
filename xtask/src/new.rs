//! `cargo xtask new`: what `burn-wgsl new` does, without the build of that command.

#[path = "../../src/bin/burn-wgsl/new/program.rs"]
mod program;

use std::path::Path;

use program::ProgramError;
use xtask::process::root;

/// Writes the program.
///
/// # Errors
///
/// Returns an error if there is not one folder, it exists or its name is not that of a package, or a file cannot be
/// written.
pub fn run(args: &[String]) -> Result<(), String> {
    let [folder] = args else {
        return Err("expected the folder of the program, such as ../spirals".to_owned());
    };
    match program::write(Path::new(folder), &program::in_folder(&root())) {
        Ok(text) => {
            print!("{text}");
            Ok(())
        }
        Err(ProgramError::Folder(message)) => Err(message),
        Err(ProgramError::Write(error)) => Err(format!("cannot write to {folder}: {error}")),
    }
}
