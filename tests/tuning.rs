//! Tuning: what is tried is right, the winner is kept for later processes, and both can be switched off.
//!
//! Each test runs its steps in processes of their own, with a cache folder of their own.

mod common;

use std::path::Path;
use std::process::Command;

use burn::tensor::{Distribution, Tensor};
use burn_wgsl::{Tuning, Wgsl, WgslDevice, set_tuning};

/// Runs one of the ignored tests below in a new process, and gives what it said.
fn in_process(step: &str, cache: &Path, tuning: &str) -> String {
    let program = std::env::current_exe().expect("a test has a program");
    let output = Command::new(program)
        .args(["--ignored", "--exact", step, "--nocapture"])
        .env("BURN_WGSL_CACHE", cache)
        .env("BURN_WGSL_TUNING", tuning)
        .env_remove("BURN_WGSL_TILING")
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{step}: {said}");
    said
}

fn kept(cache: &Path) -> Vec<String> {
    let files = std::fs::read_dir(cache).into_iter().flatten().flatten().map(|entry| entry.path());
    let files =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "tuning"));
    files
        .flat_map(|path| {
            std::fs::read_to_string(path)
                .expect("it is text")
                .lines()
                .skip(1)
                .map(str::to_owned)
                .collect::<Vec<_>>()
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
    // What no adapter of this kind would take by itself is taken because the file says so.
    rewrite(&cache, |text| {
        let lines = text.lines().map(|line| {
            line.split_once(" = ").map_or(line.to_owned(), |(name, _)| format!("{name} = tiled64"))
        });
        lines.collect::<Vec<_>>().join("\n") + "\n"
    });
    in_process("multiply_in_tiles", &cache, "kept");
    in_process("multiply_without_tiles", &cache, "off");
    // A file that somebody has spoilt is as good as none.
    rewrite(&cache, |_| "nonsense".to_owned());
    in_process("multiply_without_tiles", &cache, "kept");
    std::fs::remove_dir_all(&cache).expect("it is ours");
}

#[test]
fn a_wrong_word_is_said_and_ignored() {
    let Some(_) = software() else {
        return;
    };
    let said = in_process("multiply", Path::new("off"), "sometimes");
    assert!(said.contains("\"sometimes\" is none of off, kept and first-use"), "{said}");
    assert!("sometimes".parse::<Tuning>().is_err());
}

fn software() -> Option<WgslDevice> {
    common::devices().into_iter().find(|device| *device == WgslDevice::Software)
}

/// Puts another text in the place of a kept file's.
fn rewrite(cache: &Path, new: impl Fn(&str) -> String) {
    let files = std::fs::read_dir(cache).expect("it was made").flatten().map(|entry| entry.path());
    let files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "tuning"))
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let text = std::fs::read_to_string(&files[0]).expect("it is text");
    std::fs::write(&files[0], new(&text)).expect("it is ours");
}

/// The kernels that compute a product like the one that was tried.
fn kernels() -> String {
    let device = WgslDevice::Software;
    let [a, b] = [0, 1]
        .map(|_| Tensor::<Wgsl, 2>::random([160, 160], Distribution::Normal(0.0, 1.0), &device));
    let (_, profile) =
        burn_wgsl::profile(&device, || a.matmul(b)).expect("lavapipe has timestamps");
    profile.kernels.iter().map(|kernel| format!("{}\n", kernel.variant)).collect()
}

#[test]
#[ignore = "a step of the tests above"]
fn multiply_in_tiles() {
    let kernels = kernels();
    assert!(kernels.contains("TILED"), "{kernels}");
}

#[test]
#[ignore = "a step of the tests above"]
fn multiply_without_tiles() {
    let kernels = kernels();
    assert!(kernels.contains("matmul") && !kernels.contains("TILED"), "{kernels}");
}

/// A product, with and without what was found out.
#[test]
#[ignore = "a step of the tests above"]
fn multiply() {
    env_logger::Builder::new().filter_level("warn".parse().expect("a level")).init();
    let device = WgslDevice::Software;
    let [a, b] = [0, 1]
        .map(|_| Tensor::<Wgsl, 2>::random([160, 160], Distribution::Normal(0.0, 1.0), &device));
    let found = a.clone().matmul(b.clone()).into_data();
    set_tuning(Tuning::Off);
    let built_in = a.matmul(b).into_data();
    found.assert_approx_eq::<f32>(&built_in, burn::tensor::Tolerance::absolute(1e-3));
}
