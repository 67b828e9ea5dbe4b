//! The terminal report: a table of devices, then for each workload a table and the comparisons.

use std::borrow::Cow;

use super::{format_estimate, format_number, format_size, format_time};
use crate::bench::crossover::Crossover;
use crate::bench::results::{Comparison, MeasuredDevice, Measurement, Metrics, Outcome, Report};
use crate::output::{dense_table, table, wrap};

/// Returns the report as text for a terminal.
pub fn terminal(report: &Report) -> String {
    let mut text = header(report);
    for first in report.workloads() {
        text += &format!("\n{}", wrap(&format!("{}: {}", first.workload, first.description)));
        text += &workload_table(report, first);
        text += &kernel_tables(report, first);
        let comparisons =
            report.comparisons.iter().filter(|comparison| comparison.workload == first.workload);
        for comparison in comparisons {
            text += &wrap(&summary(comparison));
        }
    }
    text
}

/// Returns the version, the machine, the table of devices and their peak rates.
fn header(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = wrap(&format!(
        "burn-wgsl {} on {} ({} threads, {} {}), {}",
        report.version, machine.cpu, machine.threads, machine.os, machine.architecture, report.date
    ));
    let mut table = table(["device", "name", "driver", "peak compute", "peak bandwidth"]);
    for MeasuredDevice { selector, name, driver, ceilings, .. } in &report.devices {
        let rate = |rate: Option<f64>, unit: &str| match rate {
            Some(rate) => format!("{} {unit}", format_number(rate / 1e9)),
            None => "-".to_owned(),
        };
        let compute = rate(ceilings.flops_per_second, "GFLOP/s");
        let bandwidth = rate(ceilings.bytes_per_second, "GB/s");
        table.add_row([selector, name, driver, &compute, &bandwidth]);
    }
    text += &(table.trim_fmt() + "\n");
    for MeasuredDevice { selector, ceilings, .. } in &report.devices {
        text += &wrap(&format!("Peak rates of {selector}: {}.", ceilings.method));
    }
    text += &wrap(&format!(
        "Times are per run: the median of up to {} samples and the quartiles. Percentages next \
         to rates are fractions of the peak rates.",
        report.rounds
    ));
    text
}

type Cell<'a> = dyn Fn(&Measurement, &Metrics) -> Option<String> + 'a;

/// A table column: its heading and the function that formats a cell.
struct Column<'a> {
    heading: Cow<'a, str>,
    cell: Box<Cell<'a>>,
}

fn column<'a>(
    heading: impl Into<Cow<'a, str>>,
    cell: impl Fn(&Measurement, &Metrics) -> Option<String> + 'a,
) -> Column<'a> {
    Column { heading: heading.into(), cell: Box::new(cell) }
}

/// Formats a rate in units of 10^9 per second, with its share of the peak rate in percent.
fn format_rate(rate: Option<f64>, share: Option<f64>) -> Option<String> {
    let rate = format_number(rate? / 1e9);
    Some(match share {
        Some(share) => format!("{rate} ({:.0}%)", share * 100.0),
        None => rate,
    })
}

/// Formats a range of times. The unit is written once if both ends have the same.
fn format_time_range(lower: f64, upper: f64) -> String {
    let (lower, upper) = (format_time(lower), format_time(upper));
    let lower = match (lower.split_once(' '), upper.split_once(' ')) {
        (Some((number, lower_unit)), Some((_, upper_unit))) if lower_unit == upper_unit => number,
        _ => lower.as_str(),
    };
    format!("{lower} - {upper}")
}

/// Returns the table of the workload of `first`, followed by the sizes that were skipped or failed.
fn workload_table(report: &Report, first: &Measurement) -> String {
    let reference = report.reference().map_or("-", |device| device.selector.as_str());
    let columns = [
        column("median", |_, m| Some(format_time(m.seconds.median))),
        column("quartiles", |_, m| {
            Some(format_time_range(m.seconds.lower_quartile, m.seconds.upper_quartile))
        }),
        column("waited", |_, m| m.latency_seconds.map(format_time)),
        column("GPU time", |_, m| m.gpu_seconds.map(format_time)),
        column("limit", |_, m| m.limit.map(|limit| limit.to_string())),
        column("first", |_, m| Some(format_time(m.first_seconds))),
        column("GFLOP/s", |_, m| format_rate(m.flops_per_second, m.flops_share)),
        column("GB/s", |_, m| format_rate(m.bytes_per_second, m.bytes_share)),
        column("error", |_, m| m.relative_error.map(|error| format!("{error:.1e}"))),
        column(format!("vs {reference}"), |measurement, _| {
            report
                .speedup(measurement.workload, measurement.size, &measurement.device)
                .map(|speedup| format!("{}x", format_number(speedup)))
        }),
    ];
    let rows: Vec<&Measurement> = report
        .results
        .iter()
        .filter(|measurement| measurement.workload == first.workload)
        .collect();
    let cell = |measurement: &Measurement, column: &Column<'_>| match &measurement.outcome {
        Outcome::Measured(metrics) => (column.cell)(measurement, metrics),
        _ => None,
    };
    let has_cells = |column: &&Column<'_>| rows.iter().any(|row| cell(row, column).is_some());
    let columns: Vec<&Column<'_>> = columns.iter().filter(has_cells).collect();
    let headings = columns.iter().map(|column| &*column.heading);
    let mut table = dense_table([first.unit, "device"].into_iter().chain(headings));
    // The sizes that were not measured, by outcome, device and reason.
    type Gap<'a> = (&'a str, &'a str, &'a str);
    let mut gaps: Vec<(Gap<'_>, Vec<String>)> = Vec::new();
    for measurement in rows.iter().copied() {
        let size = format_size(measurement.size);
        let (status, reason) = match &measurement.outcome {
            Outcome::Measured(_) => {
                let cells = columns
                    .iter()
                    .map(|column| cell(measurement, column).unwrap_or_else(|| "-".to_owned()));
                table.add_row([size, measurement.device.clone()].into_iter().chain(cells));
                continue;
            }
            Outcome::Skipped { reason } => ("Skipped", reason.as_str()),
            Outcome::Failed { reason } => ("Failed", reason.as_str()),
        };
        let gap = (status, measurement.device.as_str(), reason);
        match gaps.iter_mut().find(|(other, _)| *other == gap) {
            Some((_, sizes)) => sizes.push(size),
            None => gaps.push((gap, vec![size])),
        }
    }
    let mut text = if table.is_empty() { String::new() } else { table.trim_fmt() + "\n" };
    for ((status, device, reason), sizes) in gaps {
        let sizes = sizes.join(", ");
        text += &wrap(&format!("{status} on {device} at {} = {sizes}: {reason}.", first.unit));
    }
    text
}

/// Returns, for each device, a table of the kernels of one run of the workload of `first` at the
/// largest size. Empty without `--profile`.
fn kernel_tables(report: &Report, first: &Measurement) -> String {
    let mut text = String::new();
    for device in &report.devices {
        let last = report.measured(first.workload, &device.selector).last();
        let Some((size, Metrics { kernels: Some(kernels), .. })) = last else {
            continue;
        };
        let total_seconds: f64 = kernels.iter().map(|kernel| kernel.seconds).sum();
        let total_calls: f64 = kernels.iter().map(|kernel| kernel.calls).sum();
        let mut table = dense_table(["kernel", "calls", "GPU time", "share"]);
        let row = |name: &str, calls: f64, seconds: f64| {
            let share = 100.0 * seconds / total_seconds.max(f64::MIN_POSITIVE);
            // The mean number of calls is fractional if a kernel does not run every time.
            let calls =
                if calls.fract() == 0.0 { format!("{calls}") } else { format!("{calls:.1}") };
            [name.to_owned(), calls, format_time(seconds), format!("{share:.1}%")]
        };
        for kernel in kernels {
            table.add_row(row(&kernel.name, kernel.calls, kernel.seconds));
        }
        table.add_row(row("total", total_calls, total_seconds));
        text += &wrap(&format!(
            "Kernels of one run on {} at {} = {}:",
            device.selector,
            first.unit,
            format_size(size)
        ));
        text += &(table.trim_fmt() + "\n");
    }
    text
}

/// Summarises a comparison in one sentence.
fn summary(comparison: &Comparison) -> String {
    let Comparison { workload, unit, device, reference, speedups, crossover } = comparison;
    let (Some((first_size, first_speedup)), Some((last_size, last_speedup))) =
        (speedups.first(), speedups.last())
    else {
        return String::new();
    };
    let relative = |speedup: f64| match speedup {
        speedup if speedup >= 1.0 => format!("{}x faster", format_number(speedup)),
        speedup => format!("{}x slower", format_number(1.0 / speedup)),
    };
    let (at_first, at_last) = (relative(*first_speedup), relative(*last_speedup));
    let (first_size, last_size) = (format_size(*first_size), format_size(*last_size));
    let range = format!("{at_first} at {unit} = {first_size}, {at_last} at {unit} = {last_size}");
    match crossover {
        None => {
            format!("{workload}: {device} is {at_last} than {reference} at {unit} = {last_size}.")
        }
        Some(Crossover::Always) => {
            format!(
                "{workload}: {device} is faster than {reference} at every measured size: {range}."
            )
        }
        Some(Crossover::Never) => {
            format!(
                "{workload}: {device} is slower than {reference} at every measured size: {range}."
            )
        }
        Some(Crossover::At { size, between: (below, above) }) => format!(
            "{workload}: {device} is faster than {reference} above {unit} ≈ {} (interpolated \
             between {} and {}): {range}.",
            format_estimate(*size),
            format_size(*below as usize),
            format_size(*above as usize),
        ),
        Some(Crossover::NotAtTheEnd) => {
            format!(
                "{workload}: {device} is faster than {reference} at some sizes, but not at the \
                 largest: {range}."
            )
        }
    }
}
