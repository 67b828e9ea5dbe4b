//! Trains a small network to tell two spirals apart: on the best GPU of this machine, or on the CPU if there is none.

mod data;
mod training;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use burn_wgsl::WgslDevice;
use burn_wgsl::train::Stop;
use clap::Parser;

/// Train a small network to tell two spirals apart
#[derive(Parser)]
struct Options {
    /// Device to train on: auto, gpu:0, name:radeon, software, cpu
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: WgslDevice,
    /// Passes over the data
    #[arg(long, value_name = "N", default_value_t = 30)]
    epochs: u64,
    /// Folder of the checkpoints. A run that is there continues
    #[arg(long, value_name = "FOLDER", default_value = "run")]
    folder: PathBuf,
}

fn main() -> Result<ExitCode> {
    // Warnings of the library are shown: checkpoints that are damaged, ops that run on the CPU.
    env_logger::init_from_env(env_logger::Env::default().default_filter_or("burn_wgsl=warn"));
    let Options { device, epochs, folder } = Options::parse();
    println!("training on {}", device.describe()?);
    // Ctrl-C, and the signals of Slurm and containers: the run saves, and ends.
    let stop = Stop::on_signals()?;
    let accuracy = training::run(&device, &folder, epochs, stop.clone())?;
    if stop.is_requested() {
        println!("stopped; start it again to continue");
        return Ok(ExitCode::from(stop.exit_code()));
    }
    println!("accuracy on points that were not trained with: {:.1} %", 100.0 * accuracy);
    Ok(ExitCode::SUCCESS)
}
