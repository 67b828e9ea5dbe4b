//! The program that `burn-wgsl new` writes. `cargo xtask new` writes it too, and builds in seconds: this module needs
//! nothing of the command.

use std::fs;
use std::io;
use std::path::Path;

/// Why a program was not written.
#[derive(Debug)]
pub enum ProgramError {
    /// The folder cannot be its folder: what to do.
    Folder(String),
    Write(io::Error),
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

/// Writes a program into a folder that does not exist. `source` is where Cargo finds this crate: a key of a dependency
/// and its value, such as that of [`in_folder`]. Returns what to do with the program.
///
/// # Errors
///
/// Returns an error if the folder exists, its name is not that of a package, or a file cannot be written.
pub fn write(folder: &Path, source: &str) -> Result<String, ProgramError> {
    let name = name_of(folder).map_err(ProgramError::Folder)?;
    if folder.exists() {
        let message =
            format!("{} exists; choose the name of a folder that does not", folder.display());
        return Err(ProgramError::Folder(message));
    }
    if let Err(error) = write_all(folder, name, source) {
        // Without the folder, the command can be repeated.
        let _ = fs::remove_dir_all(folder);
        return Err(ProgramError::Write(error));
    }
    Ok(format!(
        "wrote the program `{name}`: {}\n\n    cd {:?}\n    cargo run\n\n\
         The first build takes two minutes on two cores. For real data: cargo run --release\n",
        FILES.map(|(file, _)| file).join(", "),
        folder,
    ))
}

/// Returns the name of the program in a folder.
///
/// # Errors
///
/// Returns an error if it is not the name of a package.
fn name_of(folder: &Path) -> Result<&str, String> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // Names of container images have no capitals.
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_allowed) {
        return Err(format!(
            "`{name}` is not a name of a program: use lowercase letters of ASCII, digits, `-` and `_`, and \
             begin with a letter"
        ));
    }
    if REFUSED.contains(&name) || KEYWORDS.split_whitespace().any(|keyword| keyword == name) {
        return Err(format!(
            "`{name}` is reserved by Rust, or a dependency of the program; choose another name"
        ));
    }
    Ok(name)
}

fn write_all(folder: &Path, name: &str, source: &str) -> io::Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    for (file, text) in FILES {
        fs::write(folder.join(file), text.replace("{{name}}", name).replace("{{source}}", source))?;
    }
    Ok(())
}

/// Returns the source of a crate in a folder.
pub fn in_folder(folder: &Path) -> String {
    // A basic string of TOML escapes as JSON does.
    format!("path = {}", serde_json::Value::from(folder.display().to_string()))
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
}
