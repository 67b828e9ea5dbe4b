//! Tuning: what is tried is right, the winner is kept for later processes, and both can be switched off.
//!
//! Each test runs its steps in processes of their own, with a cache folder of their own.

mod common;

use std::path::Path;
use std::process::Command;

use burn::tensor::{Distribution, Tensor};
use burn_wgsl::{Tuning, Wgsl, WgslDevice, set_tuning};

/// Runs one of the ignored tests below in a new process.
fn in_process(step: &str, cache: &Path, tuning: &str) {
    let program = std::env::current_exe().expect("a test has a program");
    let output = Command::new(program)
        .args(["--ignored", "--exact", step, "--nocapture"])
        .env("BURN_WGSL_CACHE", cache)
        .env("BURN_WGSL_TUNING", tuning)
        .env_remove("BURN_WGSL_TILING")
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
}

fn kept(cache: &Path) -> Vec<String> {
    let files = std::fs::read_dir(cache).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "tuning"));
    files
        .flat_map(|path| {
            std::fs::read_to_string(path).expect("it is text").lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn what_is_tried_on_first_use_is_kept_and_used() {
    let Some(_) = software() else {
        return;
    };
    let cache = std::env::temp_dir().join(format!("burn-wgsl-tuning-{}", std::process::id()));
    in_process("multiply", &cache, "off");
    assert!(kept(&cache).is_empty(), "nothing is tried where tuning is off");
    in_process("multiply", &cache, "kept");
    assert!(kept(&cache).is_empty(), "nothing is tried unless asked for");
    in_process("multiply", &cache, "first-use");
    let found = kept(&cache);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("matmul 1x 128x128 by 128x128 = "), "{found:?}");
    in_process("multiply", &cache, "kept");
    // A file that somebody has spoilt is as good as none.
    for entry in std::fs::read_dir(&cache).expect("it was made").flatten() {
        std::fs::write(entry.path(), "nonsense").expect("it is ours");
    }
    in_process("multiply", &cache, "kept");
    std::fs::remove_dir_all(&cache).expect("it is ours");
}

#[test]
fn a_wrong_word_is_said_and_ignored() {
    let Some(_) = software() else {
        return;
    };
    in_process("multiply", Path::new("off"), "sometimes");
    assert!("sometimes".parse::<Tuning>().is_err());
}

fn software() -> Option<WgslDevice> {
    common::devices().into_iter().find(|device| *device == WgslDevice::Software)
}

/// A product, with and without what was found out.
#[test]
#[ignore = "a step of the tests above"]
fn multiply() {
    let device = WgslDevice::Software;
    let [a, b] = [0, 1].map(|_| Tensor::<Wgsl, 2>::random([160, 160], Distribution::Normal(0.0, 1.0), &device));
    let found = a.clone().matmul(b.clone()).into_data();
    set_tuning(Tuning::Off);
    let built_in = a.matmul(b).into_data();
    found.assert_approx_eq::<f32>(&built_in, burn::tensor::Tolerance::absolute(1e-3));
}
