//! `burn-wgsl tune`: finds the fastest matrix multiplication strategy for each class of sizes.

use std::time::Duration;

use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::{Trial, WgslDevice};

use crate::CliError;
use crate::output::{print, table};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Device to tune, such as `gpu:1` (see `burn-wgsl devices`); repeat to tune several
    /// [default: auto]
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<WgslDevice>,
}

pub fn run(arguments: &Arguments) -> Result<(), CliError> {
    let default = [WgslDevice::Auto];
    let devices =
        if arguments.devices.is_empty() { &default } else { arguments.devices.as_slice() };
    for device in devices {
        let selector = device.canonical();
        if device.resolve()? == ResolvedDevice::Cpu {
            print(&format!("{selector}: nothing to tune on the CPU device\n"))?;
            continue;
        }
        let on_trial =
            |trial: &Trial| eprintln!("{selector}: {}: {} is fastest", trial.class, trial.winner);
        let trials = burn_wgsl::tune(device, on_trial)?;
        print(&trials_table(&trials))?;
        if let Some(file) = cache_file(*device)? {
            print(&format!("Saved to {file}. Delete this file to discard the results.\n"))?;
        }
    }
    Ok(())
}

/// Returns the path of the adapter's tuning cache file, or `None` for the CPU or if the cache is
/// disabled.
fn cache_file(device: WgslDevice) -> Result<Option<String>, CliError> {
    let ResolvedDevice::Adapter(index) = device.resolve()? else {
        return Ok(None);
    };
    let runtime = burn_wgsl::runtime::Runtime::of(index)?;
    Ok(runtime.tuning_cache().file().map(|file| file.display().to_string()))
}

fn trials_table(trials: &[Trial]) -> String {
    let mut table = table(["size class", "median times", "fastest", "built-in"]);
    for trial in trials {
        let format_time = |time: Option<Duration>| {
            time.map_or_else(|| "failed".to_owned(), |time| format!("{time:.2?}"))
        };
        let times: Vec<_> = trial
            .times
            .iter()
            .map(|(strategy, time)| format!("{strategy} {}", format_time(*time)))
            .collect();
        table.add_row([
            trial.class.to_string(),
            times.join("\n"),
            trial.winner.to_owned(),
            trial.built_in.to_owned(),
        ]);
    }
    table.trim_fmt() + "\n"
}
