//! The report in a terminal: the devices, a table for each workload, and what it comes to in sentences.

use std::borrow::Cow;

use super::{about, digits, size, time};
use crate::bench::results::{Comparison, Measurement, Numbers, Outcome, Report, Subject};
use crate::bench::stats::Crossover;
use crate::text::{dense_table, table, wrapped};

pub fn terminal(report: &Report) -> String {
    let mut text = devices(report);
    for first in report.workloads() {
        text += &format!("\n{}", wrapped(&format!("{}: {}", first.workload, first.what)));
        text += &measurements(report, first);
        text += &kernels(report, first);
        for comparison in report.comparisons.iter().filter(|one| one.workload == first.workload) {
            text += &wrapped(&sentence(comparison));
        }
    }
    text
}

fn devices(report: &Report) -> String {
    let mut devices = table(["device", "name", "driver", "multiply-adds", "copies"]);
    for Subject { device, name, driver, ceilings, .. } in &report.devices {
        let rate = |rate: Option<f64>, unit: &str| match rate {
            Some(rate) => format!("{} {unit}", digits(rate / 1e9)),
            None => "-".to_owned(),
        };
        let (flops, bytes) =
            (rate(ceilings.flops_per_second, "GFLOP/s"), rate(ceilings.bytes_per_second, "GB/s"));
        devices.add_row([device, name, driver, &flops, &bytes]);
    }
    let machine = &report.machine;
    let mut text = wrapped(&format!(
        "burn-wgsl {} on {} ({} threads, {} {}), {}",
        report.version, machine.cpu, machine.threads, machine.os, machine.architecture, report.date
    ));
    text += &(devices.trim_fmt() + "\n");
    for Subject { device, ceilings, .. } in &report.devices {
        text += &wrapped(&format!("Best rates of {device}: {}.", ceilings.how));
    }
    text += &wrapped(&format!(
        "Times are medians of {} samples (quartiles beside them) taken in turns; percentages are shares of the best rates.",
        report.rounds
    ));
    text
}

type Cell<'a> = dyn Fn(&Measurement, &Numbers) -> Option<String> + 'a;

/// A column: its heading, and what it says of a measurement.
struct Column<'a> {
    heading: Cow<'a, str>,
    cell: Box<Cell<'a>>,
}

fn column<'a>(
    heading: impl Into<Cow<'a, str>>,
    cell: impl Fn(&Measurement, &Numbers) -> Option<String> + 'a,
) -> Column<'a> {
    Column { heading: heading.into(), cell: Box::new(cell) }
}

/// A rate in billions, with its share of the ceiling.
fn rate(rate: Option<f64>, share: Option<f64>) -> Option<String> {
    let rate = digits(rate? / 1e9);
    Some(match share {
        Some(share) => format!("{rate} ({:.0}%)", share * 100.0),
        None => rate,
    })
}

fn measurements(report: &Report, first: &Measurement) -> String {
    let columns = [
        column("median", |_, n| Some(time(n.seconds.median))),
        column("quartiles", |_, n| {
            let (lower, upper) = (time(n.seconds.lower_quartile), time(n.seconds.upper_quartile));
            // One unit is enough where both have the same.
            let lower = match (lower.split_once(' '), upper.split_once(' ')) {
                (Some((number, a)), Some((_, b))) if a == b => number.to_owned(),
                _ => lower,
            };
            Some(format!("{lower} - {upper}"))
        }),
        column("GPU time", |_, n| n.gpu_seconds.map(time)),
        column("first run", |_, n| Some(time(n.first_seconds))),
        column("GFLOP/s", |_, n| rate(n.flops_per_second, n.flops_share)),
        column("GB/s", |_, n| rate(n.bytes_per_second, n.bytes_share)),
        column("error", |_, n| n.relative_error.map(|error| format!("{error:.1e}"))),
        column(
            format!("vs {}", report.reference().map_or("-", |subject| subject.device.as_str())),
            |one, _| {
                report
                    .speedup(one.workload, one.size, &one.device)
                    .map(|speedup| format!("{}x", digits(speedup)))
            },
        ),
    ];
    let rows: Vec<&Measurement> =
        report.results.iter().filter(|one| one.workload == first.workload).collect();
    let cells = |one: &Measurement, column: &Column<'_>| match &one.outcome {
        Outcome::Measured(numbers) => (column.cell)(one, numbers),
        _ => None,
    };
    // A column with nothing to say is left out.
    let told = |column: &&Column<'_>| rows.iter().any(|one| cells(one, column).is_some());
    let columns: Vec<&Column<'_>> = columns.iter().filter(told).collect();
    let mut table = dense_table(
        [first.unit, "device"]
            .into_iter()
            .chain(columns.iter().map(|column| column.heading.as_ref())),
    );
    // What was not measured, with the sizes that have the same reason.
    let mut gaps: Vec<(String, Vec<String>)> = Vec::new();
    for one in &rows {
        let row = columns.iter().map(|column| cells(one, column).unwrap_or_else(|| "-".to_owned()));
        let (word, reason) = match &one.outcome {
            Outcome::Measured(_) => {
                table.add_row([size(one.size), one.device.clone()].into_iter().chain(row));
                continue;
            }
            Outcome::Skipped { reason } => ("skipped", reason),
            Outcome::Failed { reason } => ("failed", reason),
        };
        let gap = format!("on {}: {word}: {reason}.", one.device);
        match gaps.iter_mut().find(|(same, _)| *same == gap) {
            Some((_, sizes)) => sizes.push(size(one.size)),
            None => gaps.push((gap, vec![size(one.size)])),
        }
    }
    let mut text = if table.is_empty() { String::new() } else { table.trim_fmt() + "\n" };
    for (gap, sizes) in gaps {
        text += &wrapped(&format!("Size {} ({}) {gap}", sizes.join(", "), first.unit));
    }
    text
}

/// The kernels of one run at the largest size, where they were asked for.
fn kernels(report: &Report, first: &Measurement) -> String {
    let mut text = String::new();
    for subject in &report.devices {
        let last = report.measured(first.workload, &subject.device).last();
        let Some((at, Numbers { kernels: Some(kernels), .. })) = last else {
            continue;
        };
        let total: f64 = kernels.iter().map(|kernel| kernel.seconds).sum();
        let calls: f64 = kernels.iter().map(|kernel| kernel.calls).sum();
        let mut table = dense_table(["kernel", "calls", "GPU time", "share"]);
        let row = |name: &str, calls: f64, seconds: f64| {
            let share = format!("{:.1} %", 100.0 * seconds / total.max(f64::MIN_POSITIVE));
            // Whole, unless a kernel does not run every time.
            let calls =
                if calls.fract() == 0.0 { format!("{calls}") } else { format!("{calls:.1}") };
            [name.to_owned(), calls, time(seconds), share]
        };
        for kernel in kernels {
            table.add_row(row(&kernel.name, kernel.calls, kernel.seconds));
        }
        table.add_row(row("all", calls, total));
        text += &wrapped(&format!(
            "Kernels of one run at {} {} on {}:",
            first.unit,
            size(at),
            subject.device
        ));
        text += &(table.trim_fmt() + "\n");
    }
    text
}

/// What a comparison comes to.
fn sentence(comparison: &Comparison) -> String {
    let Comparison { workload, unit, device, reference, speedups, crossover } = comparison;
    let (Some((first, at_first)), Some((last, at_last))) = (speedups.first(), speedups.last())
    else {
        return String::new();
    };
    let faster = |speedup: f64| match speedup {
        speedup if speedup >= 1.0 => format!("{} times as fast", digits(speedup)),
        speedup => format!("{} times as slow", digits(1.0 / speedup)),
    };
    let (at_first, at_last) = (faster(*at_first), faster(*at_last));
    let ends = format!("{at_first} at {}, {at_last} at {}", size(*first), size(*last));
    match crossover {
        None => {
            format!("{workload}: {device} is {at_last} as {reference} at {unit} {}.", size(*last))
        }
        Some(Crossover::Always) => {
            format!(
                "{workload}: {device} is faster than {reference} at every size measured: {ends}."
            )
        }
        Some(Crossover::Never) => {
            format!(
                "{workload}: {device} is slower than {reference} at every size measured: {ends}."
            )
        }
        Some(Crossover::At { size: at, between: (below, above) }) => format!(
            "{workload}: {device} starts to win over {reference} at about {unit} {} (interpolated between {} and {}); it is {ends}.",
            about(*at),
            size(*below as usize),
            size(*above as usize),
        ),
        Some(Crossover::NotAtTheEnd) => {
            format!(
                "{workload}: {device} wins over {reference} at some sizes, but not at the largest: {ends}."
            )
        }
    }
}
