use std::path::Path;
use std::sync::{Mutex, PoisonError};

use burn_wgsl::train::Stop;
use clap::Parser;
use digits::data::{Dataset, Samples};
use digits::weights::fingerprint;

use crate::{Args, run};

/// Runs on the same device draw from the same random numbers.
static DEVICE: Mutex<()> = Mutex::new(());

/// Returns a folder that does not exist.
fn new_folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("learner-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// Runs the program on the CPU with the first 64 training and 16 test images. Returns a checksum of the weights.
fn train(folder: &Path, options: &str, stop: &Stop) -> anyhow::Result<u32> {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let line = format!("learner --device cpu --batch 16 --plain {options}");
    let mut args = Args::parse_from(line.split_whitespace());
    args.folder = folder.to_owned();
    let first = |samples: Samples, count: usize| Samples {
        pixels: samples.pixels[..count * 64].to_vec(),
        labels: samples.labels[..count].to_vec(),
    };
    let dataset = Dataset::built_in()
        .map(|dataset| Dataset { train: first(dataset.train, 64), test: first(dataset.test, 16) });
    run(&args, dataset, stop).map(|model| fingerprint(&model))
}

#[test]
fn a_run_goes_on_within_an_epoch_with_the_same_bits() {
    let folder = new_folder("resume");
    for precision in ["f32", "f16"] {
        let options = format!("--epochs 3 --precision {precision}");
        let _ = std::fs::remove_dir_all(&folder);
        let whole = train(&folder, &options, &Stop::new()).expect("training succeeds");
        let error = train(&folder, &options, &Stop::new()).expect_err("the folder has checkpoints");
        assert!(error.to_string().contains("resume it"), "{error}");
        let _ = std::fs::remove_dir_all(&folder);
        // Each run ends after one of the 4 steps of the first epoch, and the fifth in its validation.
        let stop = Stop::new();
        stop.request();
        train(&folder, &options, &stop).expect("it ends after a step");
        let options = format!("{options} --resume");
        for _ in 0..4 {
            let part = train(&folder, &options, &stop).expect("it ends after another one");
            assert_ne!(part, whole);
        }
        let last = train(&folder, &options, &Stop::new()).expect("it goes on to the end");
        assert_eq!(last, whole, "in {precision}");
        assert!(folder.join("model.mpk").is_file());
    }
    let other = train(&folder, "--epochs 4 --precision bf16 --resume", &Stop::new());
    let other = other.expect_err("the precision is another").to_string();
    assert!(other.contains("f16") && other.contains("bf16"), "{other}");
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}

#[test]
fn several_devices_train() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = new_folder("devices");
    let run = |line: &str| {
        let mut args = Args::parse_from(line.split_whitespace());
        args.folder = folder.clone();
        run(&args, Dataset::built_in(), &Stop::new()).map(|model| fingerprint(&model))
    };
    let line = "learner --devices cpu,cpu --epochs 1 --batch 512 --plain";
    let twice = run(line).expect_err("a device is there twice").to_string();
    assert!(twice.contains("--oversubscribe"), "{twice}");
    assert_eq!(
        run(&format!("{line} --oversubscribe")).expect("it trains"),
        run(&format!("{line} --oversubscribe")).expect("it trains again")
    );
    assert!(folder.join("model.mpk").is_file());
    let f16 = run(&format!("{line} --precision f16")).expect_err("it has one scale").to_string();
    assert!(f16.contains("use bf16"), "{f16}");
    let both = Args::try_parse_from(["learner", "--devices", "cpu", "--resume"]);
    assert!(both.is_err());
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let folder = new_folder("damaged");
    let whole = train(&folder, "--epochs 2", &Stop::new()).expect("training succeeds");
    let newest = std::fs::read_dir(folder.join("checkpoints")).expect("it has checkpoints");
    let newest = newest.flatten().map(|entry| entry.path()).max().expect("there are some");
    let file = newest.join("part-optimizer");
    let bytes = std::fs::read(&file).expect("the checkpoint has the state of the optimiser");
    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("the folder is writable");
    let again = train(&folder, "--epochs 2 --resume", &Stop::new()).expect("training continues");
    assert_eq!(again, whole);
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}
