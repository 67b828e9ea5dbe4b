//! `burn-wgsl new`: a program to start from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::CliError;
use crate::output::print;

#[derive(clap::Args)]
pub struct Arguments {
    /// Folder to create. Its last part is the name of the program
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// The files and their texts. `{{name}}` is the name of the program, `{{source}}` where Cargo finds this crate. The
/// sources are those of the package in `examples/start`.
const FILES: [(&str, &str); 8] = [
    (".gitignore", include_str!("template/gitignore")),
    ("Cargo.toml", include_str!("template/manifest.toml")),
    ("Containerfile", include_str!("template/Containerfile")),
    ("README.md", include_str!("template/README.md")),
    ("job.slurm", include_str!("template/job.slurm")),
    ("src/data.rs", include_str!("template/data.rs")),
    ("src/main.rs", include_str!("template/main.rs")),
    ("src/training.rs", include_str!("template/training.rs")),
];

/// Names of dependencies, and names that Cargo refuses or warns of, but for Rust's keywords.
const REFUSED: [&str; 15] = [
    "alloc",
    "anyhow",
    "build",
    "burn",
    "burn-wgsl",
    "clap",
    "core",
    "deps",
    "env_logger",
    "examples",
    "incremental",
    "proc_macro",
    "self",
    "std",
    "test",
];
/// Rust's keywords of lowercase letters.
const KEYWORDS: &str = "abstract as async await become box break const continue crate do dyn else enum extern false \
    final fn for gen if impl in let loop macro match mod move mut override priv pub ref return static struct super \
    trait true try type typeof unsafe unsized use virtual where while yield";

/// Writes the program.
pub fn run(Arguments { folder }: &Arguments) -> Result<(), CliError> {
    let name = name_of(folder)?;
    if folder.exists() {
        let message =
            format!("{} exists; choose the name of a folder that does not", folder.display());
        return Err(CliError::Usage(message));
    }
    if let Err(error) = write_all(folder, name) {
        // Without the folder, the command can be repeated.
        let _ = fs::remove_dir_all(folder);
        return Err(CliError::Write { to: folder.display().to_string(), error });
    }
    print(&format!(
        "wrote the program `{name}`: {}\n\n    cd {:?}\n    cargo run --release\n\n\
         The first build takes a few minutes.\n",
        FILES.map(|(file, _)| file).join(", "),
        folder,
    ))
}

/// Returns the name of the program in a folder.
///
/// # Errors
///
/// Returns an error if it is not the name of a package.
fn name_of(folder: &Path) -> Result<&str, CliError> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // Names of container images have no capitals.
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_allowed) {
        return Err(CliError::Usage(format!(
            "`{name}` is not a name of a program: use lowercase letters of ASCII, digits, `-` and `_`, and \
             begin with a letter"
        )));
    }
    if REFUSED.contains(&name) || KEYWORDS.split_whitespace().any(|keyword| keyword == name) {
        let message = format!(
            "`{name}` is reserved by Rust, or a dependency of the program; choose another name"
        );
        return Err(CliError::Usage(message));
    }
    Ok(name)
}

fn write_all(folder: &Path, name: &str) -> io::Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    let source = source(Path::new(env!("CARGO_MANIFEST_DIR")));
    for (file, text) in FILES {
        fs::write(
            folder.join(file),
            text.replace("{{name}}", name).replace("{{source}}", &source),
        )?;
    }
    Ok(())
}

/// Returns where Cargo finds this crate: in the clone that the command was built from, or in the registry.
fn source(clone: &Path) -> String {
    match clone.join(".git").exists() {
        // A basic string of TOML escapes as JSON does.
        true => format!("path = {}", serde_json::Value::from(clone.display().to_string())),
        false => format!("version = \"{}\"", env!("CARGO_PKG_VERSION")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_packages() {
        for name in ["spirals", "my-net", "a/b/net_2", "../net"] {
            assert!(name_of(Path::new(name)).is_ok(), "{name}");
        }
        for name in [
            "",
            "..",
            "/",
            "2nd",
            "-net",
            "my net",
            "netz-ä",
            "Net",
            "test",
            "fn",
            "burn-wgsl",
            "a.b",
        ] {
            assert!(name_of(Path::new(name)).is_err(), "{name}");
        }
    }

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
