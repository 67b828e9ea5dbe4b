use std::path::Path;

use burn_wgsl::WgslDevice;
use clap::Parser;
use digits::data::{Dataset, Samples};

use crate::{Args, checkpoints, run};

/// Returns a folder that does not exist.
fn new_folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("learner-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// Runs the program on the CPU with the first 64 training and 16 test images.
fn train(folder: &Path, options: &str) -> anyhow::Result<()> {
    let line = format!("learner --device cpu --batch 32 --plain {options}");
    let mut args = Args::parse_from(line.split_whitespace());
    args.folder = folder.to_owned();
    let first = |samples: Samples, count: usize| Samples {
        pixels: samples.pixels[..count * 64].to_vec(),
        labels: samples.labels[..count].to_vec(),
    };
    let dataset = Dataset::built_in()
        .map(|dataset| Dataset { train: first(dataset.train, 64), test: first(dataset.test, 16) });
    run(&args, dataset)
}

#[test]
fn a_run_continues_after_its_last_complete_checkpoint() {
    let folder = new_folder("resume");
    let last = || checkpoints::last(&folder, &WgslDevice::Cpu);
    train(&folder, "--epochs 2").expect("training succeeds");
    let error = train(&folder, "--epochs 3").expect_err("the folder has checkpoints").to_string();
    assert!(error.contains("epoch 2") && error.contains("--resume"), "{error}");

    // A run that was killed while it wrote the last checkpoint.
    let file = folder.join("checkpoint/optim-2.mpk");
    let bytes = std::fs::read(&file).expect("the checkpoint has the state of the optimiser");
    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("the folder is writable");
    assert_eq!(last(), Some((1, false)));
    train(&folder, "--epochs 2 --resume").expect("training continues");
    assert_eq!(last(), Some((2, false)));
    assert!(folder.join("model.mpk").is_file());
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}

/// The scaled optimizer is that of the learner, with checkpoints, which have the loss scale.
#[test]
fn a_run_in_f16_continues() {
    let folder = new_folder("f16");
    train(&folder, "--epochs 1 --precision f16").expect("training succeeds");
    train(&folder, "--epochs 2 --precision f16 --resume").expect("training continues");
    assert_eq!(checkpoints::last(&folder, &WgslDevice::Cpu), Some((2, true)));
    let error = train(&folder, "--epochs 3 --precision bf16 --resume").expect_err("it has a scale");
    assert!(error.to_string().contains("epoch 2 in f16"), "{error}");
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}
