//! Report formats: terminal tables, JSON, CSV and an SVG plot.

mod against;
mod plot;
mod table;

use super::results::{Measurement, Metrics, Outcome, Report};
use crate::CliError;
use crate::output::csv_field;

pub use against::{Earlier, against};
pub use plot::svg as plot;
pub use table::terminal;

/// Returns the report as the JSON document that `docs/bench.md` describes.
pub fn json(report: &Report) -> Result<String, CliError> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// The CSV columns that identify a measurement and its outcome.
const KEY_COLUMNS: [&str; 7] =
    ["workload", "unit", "size", "device", "adapter", "status", "reason"];

/// A getter of one metric.
type Metric = fn(&Metrics) -> Option<f64>;

/// The CSV columns after [`KEY_COLUMNS`].
const METRIC_COLUMNS: [(&str, Metric); 14] = [
    ("first_seconds", |m| Some(m.first_seconds)),
    ("median_seconds", |m| Some(m.seconds.median)),
    ("lower_quartile_seconds", |m| Some(m.seconds.lower_quartile)),
    ("upper_quartile_seconds", |m| Some(m.seconds.upper_quartile)),
    ("min_seconds", |m| Some(m.seconds.min)),
    ("max_seconds", |m| Some(m.seconds.max)),
    ("latency_seconds", |m| m.latency_seconds),
    ("gpu_seconds", |m| m.gpu_seconds),
    ("runs_per_sample", |m| Some(m.runs_per_sample as f64)),
    ("flops_per_second", |m| m.flops_per_second),
    ("bytes_per_second", |m| m.bytes_per_second),
    ("flops_share", |m| m.flops_share),
    ("bytes_share", |m| m.bytes_share),
    ("relative_error", |m| m.relative_error),
];

/// Returns a CSV file with a header and one line per measurement.
pub fn csv(report: &Report) -> Result<String, CliError> {
    let header = KEY_COLUMNS.into_iter().chain(METRIC_COLUMNS.map(|(name, _)| name));
    let mut text = header.collect::<Vec<_>>().join(",") + "\n";
    for Measurement { workload, unit, size, device, outcome, .. } in &report.results {
        let (status, reason, metrics) = match outcome {
            Outcome::Measured(metrics) => ("measured", "", Some(metrics)),
            Outcome::Skipped { reason } => ("skipped", reason.as_str(), None),
            Outcome::Failed { reason } => ("failed", reason.as_str(), None),
        };
        let measured_device = report.devices.iter().find(|other| other.selector == *device);
        let adapter = measured_device.map_or("", |device| device.name.as_str());
        let size = size.to_string();
        let keys = [*workload, *unit, size.as_str(), device.as_str(), adapter, status, reason]
            .map(csv_field);
        let format_metric = |(_, metric): (_, Metric)| {
            metrics
                .and_then(|metrics| metric(metrics))
                .map_or(String::new(), |value| value.to_string())
        };
        let fields = keys.into_iter().chain(METRIC_COLUMNS.map(format_metric));
        text += &fields.collect::<Vec<_>>().join(",");
        text += "\n";
    }
    Ok(text)
}

/// Formats a time with three significant digits in s, ms, µs or ns.
fn format_time(seconds: f64) -> String {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
    let (unit, name) = units.into_iter().find(|(unit, _)| seconds >= *unit).unwrap_or((1e-9, "ns"));
    format!("{} {name}", format_number(seconds / unit))
}

/// Formats a number with about three significant digits and no decimals from 100 upwards.
fn format_number(number: f64) -> String {
    match number.abs() {
        magnitude if magnitude >= 100.0 || magnitude == 0.0 => format!("{number:.0}"),
        magnitude if magnitude >= 10.0 => format!("{number:.1}"),
        magnitude if magnitude >= 0.01 => format!("{number:.2}"),
        _ => format!("{number:.1e}"),
    }
}

/// Formats a size. Multiples of 2^20, and of 2^10 from 2^13 upwards, are written as `1M` and `16K`.
fn format_size(size: usize) -> String {
    match size {
        size if size >= 1 << 20 && size.is_multiple_of(1 << 20) => format!("{}M", size >> 20),
        size if size >= 1 << 13 && size.is_multiple_of(1 << 10) => format!("{}K", size >> 10),
        size => size.to_string(),
    }
}

/// Formats an estimated size with two significant digits.
fn format_estimate(size: f64) -> String {
    let unit = 10_f64.powf(size.log10().floor() - 1.0).max(1.0);
    format!("{:.0}", (size / unit).round() * unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::machine::Machine;
    use crate::bench::results::{FORMAT, MeasuredDevice};
    use crate::bench::runner::Timing;
    use crate::bench::workload::{Suite, WORKLOADS, Workload};
    use burn_wgsl::WgslDevice;
    use burn_wgsl::device::ResolvedDevice;

    /// Returns a made-up report in which the GPU takes a tenth of the CPU's time plus 50 µs.
    pub(super) fn example_report(suite: Suite) -> Report {
        let machine = Machine::current();
        let cpu = MeasuredDevice::new(WgslDevice::Cpu, ResolvedDevice::Cpu, &machine);
        let gpu = MeasuredDevice {
            selector: "gpu:0".to_owned(),
            name: "A <GPU> & more".to_owned(),
            is_cpu: false,
            ..cpu.clone()
        };
        let devices = vec![gpu, cpu];
        let mut results = Vec::new();
        let workloads: Vec<&Workload> =
            WORKLOADS.iter().filter(|workload| workload.suite == suite).collect();
        for workload in &workloads {
            let device_sizes = workload
                .sizes
                .iter()
                .flat_map(|size| devices.iter().map(move |device| (*size, device)));
            for (size, device) in device_sizes {
                let cost = (workload.cost)(size);
                let cpu_seconds = cost.flops.max(cost.bytes) / 5e10;
                let seconds = if device.is_cpu { cpu_seconds } else { 5e-5 + cpu_seconds / 10.0 };
                let samples = vec![seconds * 0.9, seconds, seconds * 1.2];
                let latencies = vec![seconds * 2.0];
                let timing = Timing { first: 1.0, runs: 1, samples, latencies, profile: None };
                let metrics = Metrics::from_timing(timing, &cost, &device.ceilings, None, false)
                    .expect("the timing has samples");
                results.push(Measurement {
                    suite: workload.suite,
                    workload: workload.name,
                    description: workload.description,
                    unit: workload.unit,
                    size,
                    device: device.selector.clone(),
                    outcome: Outcome::Measured(Box::new(metrics)),
                });
            }
        }
        let mut report = Report {
            format: FORMAT,
            version: "1.0.0",
            date: "2026-11-21T00:00:00Z".to_owned(),
            command: Vec::new(),
            rounds: 3,
            machine,
            devices,
            results,
            comparisons: Vec::new(),
        };
        report.compare(&workloads);
        report
    }

    #[test]
    fn times_and_sizes_are_formatted_with_units() {
        assert_eq!(format_time(1.5), "1.50 s");
        assert_eq!(format_time(0.0123), "12.3 ms");
        assert_eq!(format_time(4.56e-7), "456 ns");
        assert_eq!(format_number(12345.6), "12346");
        assert_eq!(format_number(0.0), "0");
        assert_eq!(format_number(0.004), "4.0e-3");
        assert_eq!(
            [64, 2048, 1 << 14, 1 << 20, 3 << 20, 10_000].map(format_size),
            ["64", "2048", "16K", "1M", "3M", "10000"]
        );
    }

    #[test]
    fn estimates_have_two_significant_digits() {
        assert_eq!(
            [232_796.4, 181.2, 64.6, 3.2].map(format_estimate),
            ["230000", "180", "65", "3"]
        );
    }

    #[test]
    fn terminal_tables_fit_the_width() {
        for suite in [Suite::Elementwise, Suite::Train, Suite::Precision] {
            let text = terminal(&example_report(suite));
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(crate::output::WIDTH), "{line}");
            }
        }
    }
}
