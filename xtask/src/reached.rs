//! The step `reached` of `cargo xtask test`: every kernel variant was launched by a test.
//!
//! The tests append the name of each variant to a file when they first launch it
//! (`tests/common/reached.rs`).

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use xtask::process::target_dir;

use crate::options::Options;
use crate::shaders;
use crate::step::Outcome;

/// The environment variable with the file for the tests.
pub const VARIABLE: &str = "BURN_WGSL_TEST_REACHED";
/// The steps whose tests launch every variant together.
const STEPS: [&str; 2] = ["tests", "as-gpu"];
/// Words in the names of variants that need a feature of the adapter: subgroups of eight, 64-bit
/// integers, and matrix units.
const FEATURES: [&str; 6] =
    ["SUBGROUP", "=i64", "=u64", "UNIT_16", "UNIT=8 SUBGROUP_SIZE=8", "UNIT=8 SUBGROUP_SIZE=32"];
/// At most this many variants are printed.
const MAX_PRINTED: usize = 20;

/// Returns the file with the variants that the tests launched.
pub fn file() -> PathBuf {
    target_dir().join("reached-variants.txt")
}

/// Forgets what earlier runs launched.
///
/// # Errors
///
/// Returns an error if the file cannot be removed.
pub fn forget() -> Result<(), String> {
    match fs::remove_file(file()) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", file().display()))
        }
        _ => Ok(()),
    }
}

/// Runs the step. `tested` is the selector of the device that was tested.
///
/// # Errors
///
/// Returns an error if a variant was not launched.
pub fn step(options: &Options, tested: Option<&str>) -> Result<Outcome, String> {
    if tested != Some("software") || !STEPS.iter().all(|step| options.selects(step)) {
        let steps = STEPS.join("` and `");
        let reason =
            format!("only the steps `{steps}` on the software adapter launch every variant");
        return Ok(Outcome::Skipped(reason));
    }
    let reached = fs::read_to_string(file())
        .map_err(|error| format!("cannot read {}: {error}", file().display()))?;
    let reached: HashSet<&str> = reached.lines().collect();
    // An adapter without a feature launches none of its variants.
    let lacks = |feature: &&str| !reached.iter().any(|name| name.contains(feature));
    let lacking: Vec<&str> = FEATURES.into_iter().filter(lacks).collect();
    let all = shaders::write_all(&target_dir().join("reached-shaders"))?;
    let missing: Vec<&str> = all
        .iter()
        .map(|shader| shader.name.as_str())
        .filter(|name| !reached.contains(name))
        // Samples: programs decide at run time which fused kernels and prologues there are.
        .filter(|name| !name.starts_with("fused ") && !name.starts_with("lines "))
        .filter(|name| !name.contains("=["))
        .filter(|name| !lacking.iter().any(|feature| name.contains(feature)))
        .collect();
    println!("    the tests launched {} of {} variants", all.len() - missing.len(), all.len());
    if missing.is_empty() {
        return Ok(Outcome::Passed);
    }
    let printed = missing.iter().take(MAX_PRINTED).map(|name| format!("\n  {name}"));
    Err(format!("{} variants were not launched:{}", missing.len(), printed.collect::<String>()))
}
