//! `burn-wgsl tune`: finds the fastest matrix multiplication strategy for each class of sizes.

use std::io;
use std::path::{Path, PathBuf};
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
            print(&format!(
                "Saved to {}. Delete this file to discard the results.\n",
                file.display()
            ))?;
        }
    }
    Ok(())
}

/// Returns the path of the file with the results, or `None` if the cache is disabled.
///
/// # Errors
///
/// Returns an error if the file could not be written.
fn cache_file(device: WgslDevice) -> Result<Option<PathBuf>, CliError> {
    let ResolvedDevice::Adapter(index) = device.resolve()? else {
        return Ok(None);
    };
    let runtime = burn_wgsl::runtime::Runtime::of(index)?;
    let choices = runtime.tuning_cache();
    match choices.file() {
        Some(file) if choices.write_failed() => Err(CliError::Write {
            to: file.display().to_string(),
            error: io::Error::other(
                "the results are not saved; set BURN_WGSL_CACHE to a folder of your own",
            ),
        }),
        file => Ok(file.map(Path::to_owned)),
    }
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
