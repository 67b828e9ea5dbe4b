//! `burn-wgsl new`: a program to start from.

mod program;

use std::path::{Path, PathBuf};

use crate::CliError;
use crate::output::print;
use program::ProgramError;

#[derive(clap::Args)]
pub struct Arguments {
    /// Folder to create. Its last part is the name of the program
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Writes the program.
pub fn run(Arguments { folder }: &Arguments) -> Result<(), CliError> {
    let clone = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = match clone.join(".git").exists() {
        true => program::in_folder(clone),
        false => format!("version = \"{}\"", env!("CARGO_PKG_VERSION")),
    };
    match program::write(folder, &source) {
        Ok(text) => print(&text),
        Err(ProgramError::Folder(message)) => Err(CliError::Usage(message)),
        Err(ProgramError::Write(error)) => {
            Err(CliError::Write { to: folder.display().to_string(), error })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_manifest_has_the_dependencies_of_the_example() {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/start/Cargo.toml");
        let example = fs::read_to_string(example).expect("it is in the clone");
        let template = include_str!("template/manifest.toml");
        let dependencies = |text: &str| -> Vec<String> {
            let section =
                text.split("[dependencies]\n").nth(1).and_then(|rest| rest.split("\n\n").next());
            section.expect("there are dependencies").lines().map(str::to_owned).collect()
        };
        let example = dependencies(&example).join("\n").replace("path = \"../..\"", "{{source}}");
        assert_eq!(dependencies(template).join("\n"), example);
    }
}
