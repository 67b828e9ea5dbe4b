//! `cargo xtask reports`: the reports of `burn-wgsl doctor` as rows of the table in `docs/gpus.md`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use serde_json::Value;
use xtask::process::root;

/// The page with the table.
const PAGE: &str = "docs/gpus.md";
/// The line above the rows.
const RULE: &str = "|---|---|---|--:|--:|\n";

/// Adds each report to the table, or puts it in the place of the last one of that GPU, driver and system.
///
/// # Errors
///
/// Returns an error if there is no file, a file is no report of a tested device, or the page cannot be read or written.
pub fn run(files: &[String]) -> Result<(), String> {
    if files.is_empty() {
        return Err("expected the files that `burn-wgsl doctor --report FILE` wrote".to_owned());
    }
    let page = root().join(PAGE);
    let mut text = fs::read_to_string(&page).map_err(|error| format!("{PAGE}: {error}"))?;
    for file in files {
        let failed = |error: &dyn std::fmt::Display| format!("{file}: {error}");
        let report = fs::read_to_string(file).map_err(|error| failed(&error))?;
        let report = serde_json::from_str(&report).map_err(|error| failed(&error))?;
        let row = Row::new(&report).map_err(|error| failed(&error))?;
        text = with_row(&text, &row)?;
        println!("{}", row.line().trim_end());
    }
    fs::write(&page, text).map_err(|error| format!("{PAGE}: {error}"))
}

/// A row of the table.
struct Row {
    gpu: String,
    system: String,
    results: String,
    gflops: String,
    gigabytes: String,
}

impl Row {
    /// Reads a report.
    fn new(report: &Value) -> Result<Self, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().replace('|', "/");
        let tested = text(&report["device"]);
        let Some((gpu, _)) = tested.rsplit_once(" [") else {
            return Err(
                "the report is of no tested device: run `doctor` without `--quick`".to_owned()
            );
        };
        let devices = report["devices"]["devices"].as_array().map_or(&[][..], Vec::as_slice);
        // A GPU may be listed with several APIs.
        let is_tested = |device: &&Value| {
            text(&device["name"]) == gpu && tested.ends_with(&format!("{}]", text(&device["api"])))
        };
        let device = devices.iter().find(is_tested);
        let device = device.ok_or_else(|| format!("the report does not list {gpu}"))?;
        let named = [&report["system"]["distribution"], &report["machine"]["os"]];
        let os = named.iter().find_map(|name| name.as_str()).unwrap_or("unknown system");
        let speed = |name: &str, digits: usize| {
            let rate = report["speed"][name].as_f64();
            rate.map_or_else(String::new, |rate| format!("{:.digits$}", rate / 1e9))
        };
        let driver = format!("{} {}", text(&device["driver"]), text(&device["driver_info"]));
        Ok(Self {
            gpu: gpu.to_owned(),
            system: format!("{}, {}, {os}", driver.trim(), text(&device["api"])),
            results: results(report),
            gflops: speed("flops_per_second", 0),
            gigabytes: speed("bytes_per_second", 1),
        })
    }

    /// Returns the first two columns.
    fn key(&self) -> String {
        format!("| {} | {} |", self.gpu, self.system)
    }

    /// Returns the row as a line.
    fn line(&self) -> String {
        let Self { results, gflops, gigabytes, .. } = self;
        format!("{} {results} | {gflops} | {gigabytes} |\n", self.key())
    }
}

/// Returns what the tests of a report found.
fn results(report: &Value) -> String {
    let tests = report["self_test"].as_array().map_or(&[][..], Vec::as_slice);
    let mut cases = Vec::new();
    let mut wrong = String::new();
    for test in tests {
        let dtype = test["dtype"].as_str().unwrap_or_default();
        cases.push(format!("{} of {dtype}", test["cases"]));
        let failures = test["failures"].as_array().map_or(&[][..], Vec::as_slice);
        let ops = failures.iter().map(|failure| failure["op"].as_str().unwrap_or("another op"));
        let ops: BTreeSet<String> = ops.map(|op| op.replace('|', "/")).collect();
        for op in ops {
            let _ = write!(wrong, "; wrong: {op} in {dtype}");
        }
    }
    let verdict = if wrong.is_empty() && !cases.is_empty() { "good" } else { "not good" };
    let refused = match report["refused_kernels"].as_array().map_or(0, Vec::len) {
        0 => String::new(),
        count => format!("; {count} kernels refused by the driver"),
    };
    let version = report["version"].as_str().unwrap_or("unknown");
    format!("{verdict}: {}{wrong}{refused} (version {version})", cases.join(", "))
}

/// Returns the page with a row.
fn with_row(page: &str, row: &Row) -> Result<String, String> {
    let (before, table) =
        page.split_once(RULE).ok_or_else(|| format!("{PAGE} has no line {RULE:?}"))?;
    let (key, line) = (row.key(), row.line());
    if !table.lines().any(|other| other.starts_with(&key)) {
        return Ok(format!("{before}{RULE}{line}{table}"));
    }
    let replaced = |other| if str::starts_with(other, &key) { line.as_str() } else { other };
    let table: String = table.split_inclusive('\n').map(replaced).collect();
    Ok(format!("{before}{RULE}{table}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(failures: &Value) -> Value {
        json!({
            "version": "0.1.0",
            "machine": { "os": "linux" },
            "system": { "distribution": null },
            "devices": { "devices": [
                { "name": "Card [8 GB]", "api": "Direct3D 12", "driver": "x", "driver_info": "1" },
                { "name": "Card [8 GB]", "api": "Vulkan", "driver": "radv", "driver_info": "Mesa 25" },
            ] },
            "device": "Card [8 GB] [gpu:0, Vulkan]",
            "refused_kernels": [],
            "self_test": [{ "dtype": "f32", "cases": 639, "failures": failures }],
            "speed": { "flops_per_second": 61.4e12, "bytes_per_second": 800.25e9 },
        })
    }

    #[test]
    fn a_report_becomes_a_row_and_replaces_that_of_its_gpu_and_system() {
        let page = format!("# GPUs\n\n{RULE}| other | | not reported | | |\n\nEnd.\n");
        let row = Row::new(&report(&json!([]))).expect("it is a report");
        let once = with_row(&page, &row).expect("there is a table");
        let line = "| Card [8 GB] | radv Mesa 25, Vulkan, linux | good: 639 of f32 (version 0.1.0) | 61400 | 800.2 |\n";
        assert_eq!(once, format!("# GPUs\n\n{RULE}{line}| other | | not reported | | |\n\nEnd.\n"));
        let wrong =
            Row::new(&report(&json!([{ "op": "a|b" }, { "op": "a|b" }]))).expect("it is a report");
        let twice = with_row(&once, &wrong).expect("there is a table");
        assert_eq!(twice.lines().count(), once.lines().count());
        let moved = once.replace(line, "").replace("| | |\n\nEnd", &format!("| | |\n{line}\nEnd"));
        let in_place = with_row(&moved, &row).expect("there is a table");
        assert_eq!(in_place, moved);
        assert!(twice.contains("| not good: 639 of f32; wrong: a/b in f32 (version"), "{twice}");
    }

    #[test]
    fn a_report_without_a_tested_device_is_refused() {
        let mut quick = report(&json!([]));
        quick["device"] = Value::Null;
        assert!(Row::new(&quick).is_err_and(|error| error.contains("--quick")));
        assert!(
            with_row("no table", &Row::new(&report(&json!([]))).expect("it is a report")).is_err()
        );
    }
}
