//! The same results for people and for programs.

mod plot;
mod table;

use super::results::{Measurement, Numbers, Outcome, Report};
use crate::Failure;

pub use plot::svg as plot;
pub use table::terminal;

/// The whole report, as `docs/bench.md` describes it.
pub fn json(report: &Report) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

type Number = fn(&Numbers) -> Option<f64>;

/// The columns of a CSV file after the first seven, which say what was measured and how it went.
const NUMBERS: [(&str, Number); 13] = [
    ("first_seconds", |n| Some(n.first_seconds)),
    ("median_seconds", |n| Some(n.seconds.median)),
    ("lower_quartile_seconds", |n| Some(n.seconds.lower_quartile)),
    ("upper_quartile_seconds", |n| Some(n.seconds.upper_quartile)),
    ("min_seconds", |n| Some(n.seconds.min)),
    ("max_seconds", |n| Some(n.seconds.max)),
    ("gpu_seconds", |n| n.gpu_seconds),
    ("runs_per_sample", |n| Some(n.runs_per_sample as f64)),
    ("flops_per_second", |n| n.flops_per_second),
    ("bytes_per_second", |n| n.bytes_per_second),
    ("flops_share", |n| n.flops_share),
    ("bytes_share", |n| n.bytes_share),
    ("relative_error", |n| n.relative_error),
];

/// One line for each measurement, with a heading.
pub fn csv(report: &Report) -> Result<String, Failure> {
    let what = ["workload", "unit", "size", "device", "adapter", "status", "reason"];
    let mut text =
        what.into_iter().chain(NUMBERS.map(|(name, _)| name)).collect::<Vec<_>>().join(",") + "\n";
    for Measurement { workload, unit, size, device, outcome, .. } in &report.results {
        let (status, reason, numbers) = match outcome {
            Outcome::Measured(numbers) => ("measured", "", Some(numbers)),
            Outcome::Skipped { reason } => ("skipped", reason.as_str(), None),
            Outcome::Failed { reason } => ("failed", reason.as_str(), None),
        };
        let subject = report.devices.iter().find(|subject| subject.device == *device);
        let adapter = subject.map_or("", |subject| subject.name.as_str());
        let size = size.to_string();
        let what =
            [*workload, *unit, size.as_str(), device.as_str(), adapter, status, reason].map(quoted);
        let number = |(_, of): (_, Number)| {
            numbers
                .and_then(|numbers| of(numbers))
                .map_or(String::new(), |number| number.to_string())
        };
        text += &what.into_iter().chain(NUMBERS.map(number)).collect::<Vec<_>>().join(",");
        text += "\n";
    }
    Ok(text)
}

/// A field of a CSV line, in quotes where it needs them.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// A time in the unit that suits it, with three digits.
fn time(seconds: f64) -> String {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
    let (unit, name) = units.into_iter().find(|(unit, _)| seconds >= *unit).unwrap_or((1e-9, "ns"));
    format!("{} {name}", digits(seconds / unit))
}

/// A number with three digits that count; whole from a hundred on.
fn digits(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 0.01 => format!("{number:.2}"),
        _ => format!("{number:.1e}"),
    }
}

/// A size as people write it: powers of two from 1024 on as such.
fn size(size: usize) -> String {
    match size {
        size if size >= 1 << 20 && size.is_multiple_of(1 << 20) => format!("{}M", size >> 20),
        size if size >= 1 << 13 && size.is_multiple_of(1 << 10) => format!("{}K", size >> 10),
        size => size.to_string(),
    }
}

/// An estimated size: two digits of it.
fn about(size: f64) -> String {
    let unit = 10_f64.powf(size.log10().floor() - 1.0).max(1.0);
    format!("{:.0}", (size / unit).round() * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_short() {
        assert_eq!(time(1.5), "1.50 s");
        assert_eq!(time(0.0123), "12.3 ms");
        assert_eq!(time(4.56e-7), "456 ns");
        assert_eq!(digits(12345.6), "12346");
        assert_eq!(digits(0.0), "0");
        assert_eq!(digits(0.004), "4.0e-3");
        assert_eq!(
            [64, 2048, 1 << 14, 1 << 20, 3 << 20, 10_000].map(size),
            ["64", "2048", "16K", "1M", "3M", "10000"]
        );
    }

    #[test]
    fn estimates_have_two_digits() {
        assert_eq!([232_796.4, 181.2, 64.6, 3.2].map(about), ["230000", "180", "65", "3"]);
    }

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
