use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use burn_wgsl::train::{Checkpoint, Position, Stop};
use clap::Parser;

use crate::{Args, run};

/// A folder in that for temporary files.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("images-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn train(options: &str, stop: &Stop) -> anyhow::Result<f64> {
    // Runs on the same device draw from the same random numbers.
    static DEVICE: Mutex<()> = Mutex::new(());
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = if options.contains("--devices") { "" } else { "--device cpu" };
    let line = format!("images {device} --limit 600 --side 16 {options}");
    run(&Args::try_parse_from(line.split_whitespace())?, stop)
}

#[test]
fn shapes_are_learnt_and_pictures_drawn() {
    let folder = folder("pictures");
    let options = format!(
        "--epochs 5 --batch 16 --learning-rate 0.003 --average 0.9 --pictures {0} --log {0}",
        folder.display()
    );
    let accuracy = train(&options, &Stop::new()).expect("it trains");
    assert!(accuracy > 0.7, "{accuracy}");
    for name in ["curves.svg", "confusion.svg"] {
        let text = std::fs::read_to_string(folder.join(name)).expect("it is written");
        assert!(text.starts_with("<svg") && !text.contains("NaN"), "{text}");
    }
    let log = std::fs::read_to_string(folder.join("scalars.csv")).expect("it is written");
    assert_eq!(log.matches("test/accuracy").count(), 5, "{log}");
    assert!(log.ends_with("\n") && log.contains("train/loss"), "{log}");
    std::fs::remove_dir_all(&folder).expect("it is there");
}

#[test]
fn a_stopped_run_continues() {
    let folder = folder("stopped");
    let options = format!(
        "--epochs 2 --batch 32 --accumulate 2 --precision f16 --checkpoints {}",
        folder.display()
    );
    // It ends after its first step.
    let stop = Stop::new();
    stop.request();
    let early = train(&format!("{options} --checkpoint-every 1"), &stop);
    assert!(early.is_ok(), "{early:?}");
    let again = train(&options, &Stop::new()).expect_err("there are checkpoints").to_string();
    assert!(again.contains("resume it"), "{again}");
    let other = train(&format!("{options} --resume --seed 2"), &Stop::new());
    let other = other.expect_err("the seed is another").to_string();
    assert!(other.contains("`settings`") && other.contains("seed: 2"), "{other}");
    let resumed = train(&format!("{options} --resume"), &Stop::new()).expect("it goes on");
    let whole = train("--epochs 2 --batch 32 --accumulate 2 --precision f16", &Stop::new())
        .expect("it trains");
    assert_eq!(resumed, whole);
    std::fs::remove_dir_all(&folder).expect("it is there");
}

#[test]
fn a_run_of_two_workers_is_continued_by_one_and_by_three() {
    let folder = folder("workers");
    let two = "--devices cpu,cpu --oversubscribe";
    let three = "--devices cpu,cpu,cpu --oversubscribe";
    let options = format!(
        "--epochs 4 --batch 36 --learning-rate 0.003 --checkpoints {0} --log {0}/log",
        folder.display()
    );
    let stop = Stop::new();
    stop.request();
    train(&format!("{options} {two}"), &stop).expect("it ends after a step");
    let latest = || Checkpoint::latest(&folder).expect("it is whole").expect("there is one");
    let position = || latest().state.value::<Position>("position").expect("it is saved");
    assert_eq!((latest().step, position().items, position().batch_size), (1, 36, 36));
    // One worker goes on at the same place, and is stopped, too.
    train(&format!("{options} --resume"), &stop).expect("it ends after a step");
    assert_eq!((latest().step, position().items, position().batch_size), (2, 72, 36));
    let accuracy = train(&format!("{options} --resume {three}"), &Stop::new()).expect("it trains");
    assert!(accuracy > 0.6, "{accuracy}");
    // Each sample is counted once, in each epoch.
    assert_eq!((latest().step, position().epoch), (4 * 17, 4));
    let log = std::fs::read_to_string(folder.join("log/scalars.csv")).expect("it is written");
    assert_eq!(log.matches("test/accuracy").count(), 4, "{log}");
    let auto = train(&format!("--batch auto {two}"), &Stop::new()).expect_err("it is for one");
    assert!(auto.to_string().contains("--batch auto is for one device"), "{auto}");
    let twice = train("--devices cpu,cpu", &Stop::new()).expect_err("it is there twice");
    assert!(twice.to_string().contains("--oversubscribe"), "{twice}");
    std::fs::remove_dir_all(&folder).expect("it is there");
}

#[test]
fn errors_name_the_cause() {
    let message = |options: &str| train(options, &Stop::new()).expect_err("it fails").to_string();
    let missing = message("--data /nonexistent");
    assert!(missing.contains("/nonexistent") && missing.contains("train"), "{missing}");
    assert!(message("--batch 0").contains("at least 1"));
    assert!(message("--average 1").contains("below 1"));
    let none = message(&format!("--resume --checkpoints {}", folder("none").display()));
    assert!(none.contains("no checkpoint"), "{none}");
    let save = message("--save /nonexistent/weights.safetensors");
    assert!(save.contains("--save /nonexistent"), "{save}");
    let log = message("--log /dev/null/log");
    assert!(log.contains("--log /dev/null/log"), "{log}");
}
