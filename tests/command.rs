//! The command `burn-wgsl bench`, run as a user runs it: what it writes where, and what it refuses.

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_burn-wgsl"));
    command.arg("bench").args(line.split_whitespace()).env_remove("BURN_WGSL_DEVICE");
    command.output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it writes UTF-8")
}

/// Standard output of a run that goes well.
fn output(line: &str) -> String {
    let Output { status, stdout, stderr } = bench(line);
    assert!(status.success(), "{line}: {}", text(&stderr));
    text(&stdout)
}

/// A file that is this test's own.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn json_on_standard_output_is_one_whole_document() {
    let report: Value = serde_json::from_str(&output(
        "matmul --quick --rounds 3 --sizes 64,32 --device cpu --json -",
    ))
    .expect("nothing but JSON");
    assert_eq!(report["format"], 1);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["command"][0], "bench");
    assert!(report["machine"]["threads"].as_u64().is_some_and(|threads| threads > 0));
    let device = &report["devices"][0];
    assert_eq!((&device["device"], &device["timestamps"]), (&"cpu".into(), &false.into()));
    for ceiling in ["flops_per_second", "bytes_per_second"] {
        assert!(device["ceilings"][ceiling].as_f64().is_some_and(|rate| rate > 1e6), "{device}");
    }
    let results = report["results"].as_array().expect("a list");
    let sizes: Vec<_> = results.iter().map(|one| one["size"].as_u64()).collect();
    assert_eq!(sizes, [Some(32), Some(64)]);
    for one in results {
        assert_eq!(
            (&one["status"], &one["suite"], &one["workload"]),
            (&"measured".into(), &"matmul".into(), &"matmul".into())
        );
        assert_eq!(one["samples"].as_array().map(Vec::len), Some(3));
        let number = |value: &Value| value.as_f64().expect("a number");
        let seconds = &one["seconds"];
        assert!(number(&one["first_seconds"]) > 0.0 && number(&seconds["min"]) > 0.0);
        assert!(number(&seconds["min"]) <= number(&seconds["median"]));
        assert!(number(&seconds["median"]) <= number(&seconds["max"]));
        let rate = number(&one["flops"]) / number(&seconds["median"]);
        assert!((number(&one["flops_per_second"]) / rate - 1.0).abs() < 1e-9);
        assert!(one["gpu_seconds"].is_null(), "the CPU has no GPU time");
    }
    assert_eq!(report["comparisons"], Value::Array(Vec::new()));
}

#[test]
fn a_gpu_is_compared_with_the_cpu_in_every_form() {
    for device in common::gpus() {
        let [json, csv, plot] = ["json", "csv", "svg"].map(|end| file(&format!("bench.{end}")));
        let table = output(&format!(
            "elementwise --quick --rounds 3 --sizes 256,65536 --device {device} --device cpu --profile --json {} --csv {} --plot {}",
            json.display(),
            csv.display(),
            plot.display()
        ));
        assert!(
            table.contains("gelu of n elements") && table.contains("64K") && table.contains("GB/s"),
            "{table}"
        );

        let read = |path| std::fs::read_to_string(path).expect("it was written");
        let report: Value = serde_json::from_str(&read(&json)).expect("it is JSON");
        let comparison = &report["comparisons"][0];
        assert_eq!(
            (&comparison["workload"], &comparison["reference"]),
            (&"add".into(), &"cpu".into())
        );
        assert_eq!(comparison["speedups"].as_array().map(Vec::len), Some(2));
        assert!(comparison["crossover"]["kind"].is_string());
        let on_gpu = report["results"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|one| one["device"] != "cpu");
        for one in on_gpu.filter(|_| report["devices"][0]["timestamps"] == true) {
            let time = one["gpu_seconds"].as_f64().expect("it has timestamps");
            assert!(time > 0.0, "{one}");
            assert_eq!(
                (&one["kernels"][0]["name"], &one["kernels"][0]["calls"]),
                (&"elementwise".into(), &1.0.into())
            );
        }

        let lines = read(&csv);
        let columns = |line: &str| line.split(',').count();
        assert_eq!(lines.lines().count(), 1 + 2 * 2 * 2);
        assert!(
            lines
                .lines()
                .skip(1)
                .all(|line| line.starts_with("add,n,") || line.starts_with("gelu,n,")),
            "{lines}"
        );
        assert!(columns(lines.lines().next().unwrap_or_default()) == 20, "{lines}");

        let picture = read(&plot);
        assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
        assert!(
            picture.contains("gelu: time") && !picture.contains("NaN") && !picture.contains("inf")
        );
    }
}

#[test]
fn what_cannot_be_measured_is_shown_with_the_reason() {
    let Output { status, stdout, stderr } = bench("transfer --quick --sizes 1 --device cpu");
    assert!(
        text(&stdout).contains("skipped: the CPU device has no memory of its own"),
        "{}",
        text(&stdout)
    );
    assert!(
        !status.success() && text(&stderr).contains("nothing could be measured"),
        "{}",
        text(&stderr)
    );
}

#[test]
fn mistakes_are_refused_at_once() {
    for (line, says) in [
        ("matmul --device fpga", "Devices here"),
        ("matmul --device gpu:77", "there is no device `gpu:77` here"),
        ("matmul --sizes 0", "a size of 0"),
        ("reduce --sizes 1000000", "the largest is 32768"),
        ("matmul --device cpu --csv no/such/x.csv", "there is no folder no/such"),
    ] {
        let Output { status, stdout, stderr } = bench(line);
        let stderr = text(&stderr);
        assert!(
            !status.success() && stdout.is_empty() && stderr.contains(says),
            "{line}: {stderr}"
        );
    }
}
