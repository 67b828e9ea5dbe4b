//! Tuning: candidates compute correct results, the winner is stored for later processes, and tuning
//! can be switched off.
//!
//! Each test has its own cache folder and runs its steps in separate processes.

use std::path::{Path, PathBuf};

use burn::tensor::{Distribution, Tensor};
use burn_wgsl::{Tuning, Wgsl, WgslDevice, set_tuning};

use crate::common::{self, test_alone};

/// Runs one of the ignored tests below in a new process and returns its standard error.
fn run_step(step: &str, cache: &Path, tuning: &str) -> String {
    let output = test_alone!(step)
        .env("BURN_WGSL_CACHE", cache)
        .env("BURN_WGSL_TUNING", tuning)
        .env_remove("BURN_WGSL_TILING")
        .output()
        .expect("the test program starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{step}: {stderr}");
    stderr
}

/// Returns the paths of the tuning files in a cache folder.
fn tuning_files(cache: &Path) -> impl Iterator<Item = PathBuf> {
    let paths = std::fs::read_dir(cache).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "tuning"))
}

/// Returns the lines of the tuning files in a cache folder, without their headers.
fn tuning_results(cache: &Path) -> Vec<String> {
    tuning_files(cache)
        .flat_map(|path| {
            std::fs::read_to_string(path)
                .expect("the tuning file is readable text")
                .lines()
                .skip(1)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn first_use_tuning_stores_the_winner_for_later_processes() {
    let Some(_) = software() else {
        return;
    };
    let cache = std::env::temp_dir().join(format!("burn-wgsl-tuning-{}", std::process::id()));
    run_step("multiply", &cache, "off");
    assert!(tuning_results(&cache).is_empty(), "off runs no trials");
    run_step("multiply", &cache, "cached");
    assert!(tuning_results(&cache).is_empty(), "cached runs no trials");
    run_step("multiply", &cache, "first-use");
    let results = tuning_results(&cache);
    assert_eq!(results.len(), 1, "{results:?}");
    assert!(results[0].starts_with("matmul 1x 128x128 by 128x128 = "), "{results:?}");
    // tiled64 is not the built-in choice for a software adapter. Its use proves that the file is
    // read.
    rewrite_tuning_file(&cache, |text| {
        let lines = text.lines().map(|line| {
            line.split_once(" = ").map_or(line.to_owned(), |(name, _)| format!("{name} = tiled64"))
        });
        lines.collect::<Vec<_>>().join("\n") + "\n"
    });
    run_step("multiply_in_tiles", &cache, "cached");
    run_step("multiply_without_tiles", &cache, "off");
    // A corrupt file is ignored.
    rewrite_tuning_file(&cache, |_| "nonsense".to_owned());
    run_step("multiply_without_tiles", &cache, "cached");
    std::fs::remove_dir_all(&cache).expect("the cache folder can be removed");
}

#[test]
fn an_invalid_tuning_variable_is_reported_and_ignored() {
    let Some(_) = software() else {
        return;
    };
    // `off` disables the cache.
    let stderr = run_step("multiply", Path::new("off"), "sometimes");
    assert!(stderr.contains("=\"sometimes\" is ignored: use off, cached or first-use"), "{stderr}");
    assert!("sometimes".parse::<Tuning>().is_err());
}

/// In a process of its own: other tests' work warms the device up.
#[test]
fn the_warm_up_of_a_software_adapter_can_be_skipped() {
    if software().is_some() {
        let mut step = test_alone!("multiply_before_and_after_warm_up");
        step.env("BURN_WGSL_TUNING", "off");
        for variable in ["TILING", "WARM", "AS_GPU"] {
            step.env_remove(format!("BURN_WGSL_{variable}"));
        }
        common::assert_success(&step.output().expect("the test program starts"));
    }
}

/// Returns the software adapter, if there is one.
fn software() -> Option<WgslDevice> {
    common::devices().into_iter().find(|device| *device == WgslDevice::Software)
}

/// Replaces the text of the only tuning file in a cache folder.
fn rewrite_tuning_file(cache: &Path, edit: impl Fn(&str) -> String) {
    let files: Vec<_> = tuning_files(cache).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let text = std::fs::read_to_string(&files[0]).expect("the tuning file is readable text");
    std::fs::write(&files[0], edit(&text)).expect("the tuning file is writable");
}

/// Returns two matrices whose product is in the tuned size class.
fn operands() -> [Tensor<Wgsl, 2>; 2] {
    let normal = Distribution::Normal(0.0, 1.0);
    [0, 1].map(|_| Tensor::random([160, 160], normal, &WgslDevice::Software))
}

/// Multiplies two matrices and returns the kernel variants, one per line.
fn matmul_variants() -> String {
    let [a, b] = operands();
    let (_, profile) = burn_wgsl::profile(&WgslDevice::Software, || a.matmul(b))
        .expect("the software adapter supports timestamps");
    profile.kernels.iter().map(|kernel| format!("{}\n", kernel.variant)).collect()
}

#[test]
#[ignore = "a step of the tests above"]
fn multiply_in_tiles() {
    let variants = matmul_variants();
    assert!(variants.contains("TILED"), "{variants}");
}

#[test]
#[ignore = "a step of the tests above"]
fn multiply_without_tiles() {
    let variants = matmul_variants();
    assert!(variants.contains("matmul") && !variants.contains("TILED"), "{variants}");
}

/// Compares a product that may use tuning results with one that uses the built-in strategy.
#[test]
#[ignore = "a step of the tests above"]
fn multiply() {
    env_logger::Builder::new().filter_level("warn".parse().expect("warn is a log level")).init();
    let [a, b] = operands();
    let tuned = a.clone().matmul(b.clone()).into_data();
    set_tuning(Tuning::Off);
    let built_in = a.matmul(b).into_data();
    tuned.assert_approx_eq::<f32>(&built_in, burn::tensor::Tolerance::absolute(1e-3));
}

#[test]
#[ignore = "a step of the tests above"]
fn multiply_before_and_after_warm_up() {
    let uses_vec4 = || matmul_variants().contains("VEC4");
    assert!(!uses_vec4(), "the first kernel compiles quickly");
    burn_wgsl::skip_warm_up(&WgslDevice::Software).expect("the software adapter is open");
    burn_wgsl::skip_warm_up(&WgslDevice::Cpu).expect("the CPU has nothing to skip");
    assert!(burn_wgsl::skip_warm_up(&WgslDevice::Gpu(99)).is_err());
    assert!(uses_vec4(), "the warm-up was skipped");
    burn_wgsl::close(&WgslDevice::Software).expect("the software adapter exists");
    assert!(!uses_vec4(), "another opening warms up");
}
