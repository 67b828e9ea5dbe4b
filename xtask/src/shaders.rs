//! Writes every kernel variant to a folder, for the compilers of drivers and APIs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use xtask::process::{cargo, run_command};

/// A file with an expanded kernel.
pub struct Shader {
    /// The source and the definitions of the variant.
    pub name: String,
    pub file: PathBuf,
}

/// Writes every variant to the folder `shaders`, which is emptied first, and returns the files
/// sorted by name.
///
/// # Errors
///
/// Returns an error if the crate's tests do not compile or a file cannot be written.
pub fn write_all(shaders: &Path) -> Result<Vec<Shader>, String> {
    write_with_test(shaders, "every_variant_is_written_for_gpus")?;
    let entries = fs::read_dir(shaders)
        .map_err(|error| format!("cannot read {}: {error}", shaders.display()))?;
    let mut found = Vec::new();
    for file in entries.flatten().map(|entry| entry.path()) {
        let mut line = String::new();
        fs::File::open(&file)
            .and_then(|opened| BufReader::new(opened).read_line(&mut line))
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let name = line.trim_start_matches("// ").trim_end().to_owned();
        found.push(Shader { name, file });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Empties the folder `shaders` and runs the test of `tests/code/variants` that writes variants
/// there.
///
/// # Errors
///
/// Returns an error if the test does not compile or fails, or the folder cannot be written.
pub fn write_with_test(shaders: &Path, test: &str) -> Result<(), String> {
    let write_error = |error| format!("cannot write to {}: {error}", shaders.display());
    // Remove the shaders of an earlier run, so that only current ones are compiled.
    if shaders.exists() {
        fs::remove_dir_all(shaders).map_err(write_error)?;
    }
    fs::create_dir_all(shaders).map_err(write_error)?;
    let args = "test --workspace --all-features --locked --quiet --test code -- --exact";
    let test = format!("variants::{test}");
    let mut command = cargo(&args.split(' ').chain([&*test]).collect::<Vec<_>>());
    run_command(command.env("BURN_WGSL_SHADERS", shaders))
}

/// Writes the paths of shaders to the file `list`, one per line.
///
/// # Errors
///
/// Returns an error if the file cannot be written.
pub fn write_list<'a>(
    list: &Path,
    shaders: impl IntoIterator<Item = &'a Shader>,
) -> Result<(), String> {
    let lines = shaders.into_iter().map(|shader| format!("{}\n", shader.file.display()));
    fs::write(list, lines.collect::<String>())
        .map_err(|error| format!("cannot write {}: {error}", list.display()))
}
