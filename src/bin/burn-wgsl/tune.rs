//! `burn-wgsl tune`: how matrix products are fastest here.

use std::time::Duration;

use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::{Trial, WgslDevice};

use crate::Failure;
use crate::text::{print, table};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A device to tune, by its word; may be repeated [default: the automatic choice]
    #[arg(long = "device", value_name = "WORD")]
    devices: Vec<WgslDevice>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let chosen = [WgslDevice::Auto];
    let devices = if arguments.devices.is_empty() { &chosen } else { arguments.devices.as_slice() };
    for device in devices {
        let word = device.preferred();
        if device.resolve()? == ResolvedDevice::Cpu {
            show(&format!("{word}: nothing to tune, its ops have one way each\n"))?;
            continue;
        }
        let heard =
            |trial: &Trial| eprintln!("{word}: {} is fastest as {}", trial.class, trial.winner);
        let trials = burn_wgsl::tune(device, heard)?;
        show(&text(&trials))?;
        if let Some(file) = kept_in(*device)? {
            show(&format!("Kept in {file}; delete the file to forget it.\n"))?;
        }
    }
    Ok(())
}

fn show(text: &str) -> Result<(), Failure> {
    print(text).map_err(|error| Failure::write("standard output", error))
}

/// The file of an adapter's choices.
fn kept_in(device: WgslDevice) -> Result<Option<String>, Failure> {
    let ResolvedDevice::Adapter(index) = device.resolve()? else {
        return Ok(None);
    };
    let runtime = burn_wgsl::runtime::Runtime::of(index)?;
    Ok(runtime.tuning_cache().file().map(|file| file.display().to_string()))
}

fn text(trials: &[Trial]) -> String {
    let mut table = table(["product", "times", "fastest", "built in"]);
    for trial in trials {
        let time = |time: Option<Duration>| {
            time.map_or_else(|| "failed".to_owned(), |time| format!("{time:.2?}"))
        };
        let times: Vec<_> =
            trial.times.iter().map(|(word, each)| format!("{word} {}", time(*each))).collect();
        table.add_row([
            trial.class.to_string(),
            times.join("\n"),
            trial.winner.to_owned(),
            trial.built_in.to_owned(),
        ]);
    }
    table.trim_fmt() + "\n"
}
