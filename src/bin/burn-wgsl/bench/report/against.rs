//! The comparison of a report with an earlier one, from its JSON document.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{format_number, format_size, format_time};
use crate::CliError;
use crate::bench::results::{FORMAT, Measurement, Outcome, Report};
use crate::output::{dense_table, wrap};

/// An earlier report.
pub struct Earlier {
    /// When and where it was measured.
    origin: String,
    times: Vec<Times>,
}

/// The median and the quartiles of a measurement, in seconds.
struct Times {
    workload: String,
    size: u64,
    selector: String,
    adapter: String,
    median: f64,
    quartiles: (f64, f64),
}

impl Earlier {
    /// Reads the document of an earlier run.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or is no document of `bench --json` of this format.
    pub fn read(path: &Path) -> Result<Self, CliError> {
        let failed = |error: &dyn std::fmt::Display| {
            CliError::Usage(format!(
                "--against {}: {error}; expected a file that `bench --json` wrote",
                path.display()
            ))
        };
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        let document: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        let format = document["format"].as_u64();
        if format.is_some_and(|format| format != u64::from(FORMAT)) {
            return Err(failed(&format!("its format is {}, not {FORMAT}", document["format"])));
        }
        Self::parse(&document).ok_or_else(|| failed(&"it is no report"))
    }

    fn parse(document: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let devices = document["devices"].as_array()?;
        let name_of = |selector: &Value| {
            text(&devices.iter().find(|device| device["device"] == *selector)?["name"])
        };
        let times = |result: &Value| {
            let seconds = &result["seconds"];
            Some(Times {
                workload: text(&result["workload"])?,
                size: result["size"].as_u64()?,
                selector: text(&result["device"])?,
                adapter: name_of(&result["device"])?,
                median: seconds["median"].as_f64()?,
                quartiles: (
                    seconds["lower_quartile"].as_f64()?,
                    seconds["upper_quartile"].as_f64()?,
                ),
            })
        };
        Some(Self {
            origin: format!(
                "version {}, {}, {}",
                text(&document["version"])?,
                text(&document["date"])?,
                text(&document["machine"]["cpu"])?
            ),
            times: document["results"].as_array()?.iter().filter_map(times).collect(),
        })
    }

    fn times_of(&self, measurement: &Measurement, adapter: &str) -> Option<&Times> {
        let mut found: Vec<&Times> = self
            .times
            .iter()
            .filter(|times| {
                times.workload == measurement.workload
                    && times.size == measurement.size as u64
                    && times.adapter == adapter
            })
            .collect();
        // Of several GPUs of one name, the same.
        found.sort_by_key(|times| times.selector != measurement.device);
        found.first().copied()
    }
}

/// Returns a table of the measurements that an earlier report has too: of the same workload and size, on a device of
/// the same name.
pub fn against(report: &Report, earlier: &Earlier) -> String {
    let mut table =
        dense_table(["workload", "size", "device", "before", "now", "before / now", "result"]);
    for measurement in &report.results {
        let Outcome::Measured(metrics) = &measurement.outcome else { continue };
        let device = report.devices.iter().find(|device| device.selector == measurement.device);
        let adapter = device.map_or("", |device| device.name.as_str());
        let Some(before) = earlier.times_of(measurement, adapter) else { continue };
        let now = &metrics.seconds;
        let (lower, upper) = before.quartiles;
        let result = match () {
            () if now.upper_quartile < lower => "faster",
            () if now.lower_quartile > upper => "slower",
            () => "",
        };
        table.add_row([
            measurement.workload.to_owned(),
            format_size(measurement.size),
            measurement.device.clone(),
            format_time(before.median),
            format_time(now.median),
            format_number(before.median / now.median),
            result.to_owned(),
        ]);
    }
    let title = format!("Against the earlier run ({}):", earlier.origin);
    if table.row_count() == 0 {
        return format!("\n{}", wrap(&format!("{title} it has no measurement of these.")));
    }
    let note = "`faster` and `slower` are differences of which the quartiles do not overlap. Between two runs, the \
                clock and the load of a machine change, too: measure both again before a claim.";
    format!("\n{}{}\n{}", wrap(&title), table.trim_fmt(), wrap(note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::json;
    use crate::bench::report::tests::example_report;
    use crate::bench::workload::Suite;

    #[test]
    fn a_difference_counts_if_the_quartiles_do_not_overlap() {
        let report = example_report(Suite::Matmul);
        let mut document: Value =
            serde_json::from_str(&json(&report).expect("it is written")).expect("it is JSON");
        let earlier = Earlier::parse(&document).expect("it is a report");
        let text = against(&report, &earlier);
        assert!(text.contains("matmul") && text.contains("1.00"), "{text}");
        let ends = |text: &str, word: &str| {
            text.lines().filter(|line| line.trim_end().ends_with(word)).count()
        };
        assert_eq!((ends(&text, " slower"), ends(&text, " faster")), (0, 0), "{text}");

        for name in ["median", "lower_quartile", "upper_quartile"] {
            let value = &mut document["results"][0]["seconds"][name];
            *value = (value.as_f64().expect("it is a number") / 4.0).into();
        }
        let earlier = Earlier::parse(&document).expect("it is a report");
        let text = against(&report, &earlier);
        assert_eq!((ends(&text, " slower"), ends(&text, " faster")), (1, 0), "{text}");
        assert!(text.contains("0.25"), "{text}");
        for name in ["median", "lower_quartile", "upper_quartile"] {
            let value = &mut document["results"][0]["seconds"][name];
            *value = (value.as_f64().expect("it is a number") * 16.0).into();
        }
        let earlier = Earlier::parse(&document).expect("it is a report");
        assert_eq!(ends(&against(&report, &earlier), " faster"), 1);

        document["devices"][0]["name"] = "another".into();
        document["devices"][1]["name"] = "another".into();
        let other = Earlier::parse(&document).expect("it is a report");
        assert!(!against(&report, &other).contains("before / now"));
        document["results"] = Value::Null;
        assert!(Earlier::parse(&document).is_none());
    }
}
