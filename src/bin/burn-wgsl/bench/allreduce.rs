//! `burn-wgsl bench allreduce`: how long the workers of `burn_wgsl::parallel` take for the mean of gradients.

#[path = "../../../../benches/shared/allreduce.rs"]
mod rounds;

use burn_wgsl::WgslDevice;
use burn_wgsl::parallel::{self, Workers};
use serde::Serialize;

use self::rounds::measure;
use super::Arguments;
use crate::CliError;
use crate::output::{self, dense_table, wrap};

/// The gradients of a size, and what was measured.
#[derive(Debug, Serialize)]
struct Row {
    devices: Vec<String>,
    numbers: usize,
    /// The median time of a round.
    seconds: f64,
    /// Bytes of the gradients of a worker per second.
    bytes_per_second: f64,
}

/// Measures each size with two and four workers on each device, or with one on each of several, and prints a table or
/// writes JSON.
pub fn run(arguments: &Arguments) -> Result<(), CliError> {
    if arguments.csv.is_some() || arguments.plot.is_some() || !arguments.sizes.is_empty() {
        let message = "`bench allreduce` has --device, --quick and --json only".to_owned();
        return Err(CliError::Usage(message));
    }
    arguments.check_files()?;
    let worlds = match &arguments.devices[..] {
        [] => vec![vec![WgslDevice::Auto; 2], vec![WgslDevice::Auto; 4]],
        [device] => vec![vec![*device; 2], vec![*device; 4]],
        devices => vec![devices.to_vec()],
    };
    let sizes: &[usize] = match arguments.quick {
        true => &[10_000, 1_000_000],
        false => &[10_000, 100_000, 1_000_000, 10_000_000, 50_000_000],
    };
    let rounds = if arguments.quick { 5 } else { 20 };
    let mut rows = Vec::new();
    for devices in worlds {
        for &numbers in sizes {
            let workers = Workers::threads(devices.iter().copied()).oversubscribed(true);
            let times = parallel::run(workers, |worker| measure(worker, numbers, rounds));
            let times = times.map_err(|error| CliError::Measurement(error.to_string()))?;
            let mut times = times.into_iter().next().unwrap_or_default();
            times.sort();
            let seconds = times[times.len() / 2].as_secs_f64();
            rows.push(Row {
                devices: devices.iter().map(|device| device.canonical().to_string()).collect(),
                numbers,
                seconds,
                bytes_per_second: (numbers * size_of::<f32>()) as f64 / seconds,
            });
        }
    }
    match &arguments.json {
        Some(file) => output::write(file, &(serde_json::to_string_pretty(&rows)? + "\n"))?,
        None => output::print(&table(&rows))?,
    }
    Ok(())
}

fn table(rows: &[Row]) -> String {
    let mut table = dense_table(["devices", "numbers", "time", "GB/s"]);
    for row in rows {
        table.add_row([
            row.devices.join(","),
            row.numbers.to_string(),
            format!("{:.2} ms", row.seconds * 1e3),
            format!("{:.2}", row.bytes_per_second / 1e9),
        ]);
    }
    let text = "The mean of gradients of this many f32 numbers, from the readback to the upload; GB/s count \
                the gradients of a worker once.";
    format!("{table}\n\n{}", wrap(text))
}
