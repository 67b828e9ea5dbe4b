//! End-to-end tests of the command `burn-wgsl`: report files, standard output and error messages.

use std::path::PathBuf;
use std::process::{Command, Output};

use burn_wgsl::WgslDevice;
use serde_json::Value;

use crate::common;

/// Runs `burn-wgsl bench` with the arguments of a line.
fn bench(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_burn-wgsl"));
    command.arg("bench").args(line.split_whitespace()).env_remove("BURN_WGSL_DEVICE");
    command.output().expect("the command starts")
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is UTF-8")
}

/// Returns the standard output of a successful run.
fn stdout_of(line: &str) -> String {
    let Output { status, stdout, stderr } = bench(line);
    assert!(status.success(), "{line}: {}", utf8(&stderr));
    utf8(&stdout)
}

/// Returns a path in the temporary directory of the tests.
fn temporary_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn json_on_standard_output_is_one_document() {
    let report: Value = serde_json::from_str(&stdout_of(
        "matmul --quick --rounds 3 --sizes 64,32 --device cpu --json -",
    ))
    .expect("standard output is JSON");
    assert_eq!(report["format"], 1);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["command"][0], "bench");
    assert!(report["machine"]["threads"].as_u64().is_some_and(|threads| threads > 0));
    let device = &report["devices"][0];
    assert_eq!((&device["device"], &device["timestamps"]), (&"cpu".into(), &false.into()));
    for ceiling in ["flops_per_second", "bytes_per_second"] {
        assert!(device["ceilings"][ceiling].as_f64().is_some_and(|rate| rate > 1e6), "{device}");
    }
    let results = report["results"].as_array().expect("`results` is an array");
    let sizes: Vec<_> = results.iter().map(|result| result["size"].as_u64()).collect();
    assert_eq!(sizes, [Some(32), Some(64)]);
    for result in results {
        assert_eq!(
            (&result["status"], &result["suite"], &result["workload"]),
            (&"measured".into(), &"matmul".into(), &"matmul".into())
        );
        assert_eq!(result["samples"].as_array().map(Vec::len), Some(3));
        let number = |value: &Value| value.as_f64().expect("the value is a number");
        let seconds = &result["seconds"];
        assert!(number(&result["first_seconds"]) > 0.0 && number(&seconds["min"]) > 0.0);
        assert!(number(&seconds["min"]) <= number(&seconds["median"]));
        assert!(number(&seconds["median"]) <= number(&seconds["max"]));
        let rate = number(&result["flops"]) / number(&seconds["median"]);
        assert!((number(&result["flops_per_second"]) / rate - 1.0).abs() < 1e-9);
        assert!(result["gpu_seconds"].is_null(), "the CPU has no GPU time");
    }
    assert_eq!(report["comparisons"], Value::Array(Vec::new()));
}

#[test]
fn every_report_format_compares_a_gpu_with_the_cpu() {
    for device in common::gpus() {
        let [json, csv, plot] =
            ["json", "csv", "svg"].map(|extension| temporary_file(&format!("bench.{extension}")));
        let table = stdout_of(&format!(
            "elementwise --quick --rounds 3 --sizes 256,65536 --device {device} --device cpu \
             --profile --json {} --csv {} --plot {}",
            json.display(),
            csv.display(),
            plot.display()
        ));
        assert!(
            table.contains("GELU of n elements") && table.contains("64K") && table.contains("GB/s"),
            "{table}"
        );

        let read = |path| std::fs::read_to_string(path).expect("the report file exists");
        let report: Value = serde_json::from_str(&read(&json)).expect("the file is JSON");
        let comparison = &report["comparisons"][0];
        assert_eq!(
            (&comparison["workload"], &comparison["reference"]),
            (&"add".into(), &"cpu".into())
        );
        assert_eq!(comparison["speedups"].as_array().map(Vec::len), Some(2));
        assert!(comparison["crossover"]["kind"].is_string());
        let gpu_results = report["results"]
            .as_array()
            .expect("`results` is an array")
            .iter()
            .filter(|result| result["device"] != "cpu");
        for result in gpu_results.filter(|_| report["devices"][0]["timestamps"] == true) {
            let seconds = result["gpu_seconds"].as_f64().expect("the device has timestamps");
            assert!(seconds > 0.0, "{result}");
            assert_eq!(
                (&result["kernels"][0]["name"], &result["kernels"][0]["calls"]),
                (&"fused".into(), &1.0.into())
            );
        }

        let csv = read(&csv);
        let (header, rows) = csv.split_once('\n').expect("the CSV file has a header");
        assert_eq!(header.split(',').count(), 21, "{csv}");
        let workloads = ["add,n,", "gelu,n,", "chain,n,", "add f16,n,"];
        // Two sizes, two devices.
        assert_eq!(rows.lines().count(), workloads.len() * 2 * 2, "{csv}");
        let is_known = |row: &str| workloads.iter().any(|workload| row.starts_with(workload));
        assert!(rows.lines().all(is_known), "{csv}");

        let svg = read(&plot);
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("gelu: time") && !svg.contains("NaN") && !svg.contains("inf"));
    }
}

#[test]
fn skipped_workloads_are_listed_with_the_reason() {
    let Output { status, stdout, stderr } = bench("transfer --quick --sizes 1 --device cpu");
    let (stdout, stderr) = (utf8(&stdout), utf8(&stderr));
    assert!(
        stdout.contains("Skipped on cpu at MiB = 1: the CPU device uses host memory"),
        "{stdout}"
    );
    assert!(!status.success() && stderr.contains("nothing was measured"), "{stderr}");
}

#[test]
fn invalid_arguments_are_rejected_before_measuring() {
    for (line, expected) in [
        ("matmul --device fpga", "Devices here"),
        ("matmul --device gpu:77", "there is no device `gpu:77` here"),
        ("matmul --sizes 0", "must be at least 1"),
        ("reduce --sizes 1000000", "the maximum is 32768"),
        ("matmul --device cpu --csv no/such/x.csv", "the directory no/such does not exist"),
    ] {
        let Output { status, stdout, stderr } = bench(line);
        let stderr = utf8(&stderr);
        assert!(
            !status.success() && stdout.is_empty() && stderr.contains(expected),
            "{line}: {stderr}"
        );
    }
}

#[test]
fn doctor_says_what_is_wrong_and_writes_a_report() {
    let doctor = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_burn-wgsl"));
        command.arg("doctor").args(line.split_whitespace()).env_remove("BURN_WGSL_DEVICE");
        command.output().expect("the command starts")
    };
    let output = doctor("--quick --report -");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is one document");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    let findings = report["findings"].as_array().expect("a list");
    let has = |level: &str| findings.iter().any(|finding| finding["level"] == level);
    // Without a usable GPU there is a problem, and the command fails.
    assert_eq!(output.status.success(), has("good"), "{report}");
    assert!(has("good") || has("problem"), "{report}");
    for finding in findings.iter().filter(|finding| finding["level"] == "problem") {
        assert!(finding["fixes"].as_array().is_some_and(|fixes| !fixes.is_empty()), "{finding}");
    }
    assert!(report["devices"]["devices"].as_array().is_some_and(|devices| !devices.is_empty()));

    // A variable that selects what is not there is a problem, not the end of the command.
    let mut command = Command::new(env!("CARGO_BIN_EXE_burn-wgsl"));
    command.args(["doctor", "--quick", "--report", "-"]).env("BURN_WGSL_DEVICE", "gpu:77");
    let output = command.output().expect("the command starts");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is one document");
    assert!(report["findings"].to_string().contains("unset BURN_WGSL_DEVICE"), "{report}");

    let text = utf8(&doctor("--quick").stdout);
    assert!(text.contains("good:") || text.contains("problem:"), "{text}");
    // A software adapter that was asked for is enough.
    let has_software = WgslDevice::Software.resolve().is_ok();
    assert_eq!(doctor("--quick --device software").status.success(), has_software);
    let output = doctor("--device gpu:99");
    assert!(!output.status.success());
    assert!(utf8(&output.stderr).contains("gpu:99"), "{}", utf8(&output.stderr));
}

/// Runs `burn-wgsl` with arguments. Returns whether it succeeded, its standard output and its standard error.
fn command(arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_burn-wgsl"));
    let output = command.args(arguments).output().expect("the command starts");
    (output.status.success(), utf8(&output.stdout), utf8(&output.stderr))
}

#[test]
fn explain_prints_an_entry_or_a_list() {
    let (success, text, _) = command(&["explain", "[bw11]"]);
    assert!(success && text.starts_with("BW11: Out of memory\n"), "{text}");
    assert!(
        text.contains("\nCure. ") && text.contains("(docs/training.md#accumulation)"),
        "{text}"
    );
    let (success, list, _) = command(&["explain"]);
    assert!(success && list.lines().filter(|line| line.starts_with("BW")).count() >= 40, "{list}");
    let (_, found, _) = command(&["explain", "container"]);
    assert!(found.contains("BW02") && !found.contains("BW31"), "{found}");
    let (success, _, error) = command(&["explain", "BW99"]);
    assert!(!success && error.contains("no entry has the code or the words `BW99`"), "{error}");
}

#[test]
fn new_writes_a_package_and_nothing_over_files() {
    let folder = temporary_file("new-program");
    let _ = std::fs::remove_dir_all(&folder);
    let path = folder.to_str().expect("it is text");
    let (success, text, error) = command(&["new", path]);
    assert!(success && text.contains("cargo run --release"), "{text}{error}");
    let mut cargo = Command::new(env!("CARGO"));
    let manifest = folder.join("Cargo.toml");
    cargo
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(manifest);
    let output = cargo.output().expect("cargo starts");
    assert!(output.status.success(), "{}", utf8(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(metadata["packages"][0]["name"], "new-program");
    for file in ["README.md", "Containerfile", "job.slurm"] {
        let text = std::fs::read_to_string(folder.join(file)).expect("it was written");
        assert!(text.contains("new-program") && !text.contains("{{"), "{text}");
    }

    let (success, _, error) = command(&["new", path]);
    assert!(!success && error.contains("exists"), "{error}");
    let (success, _, error) = command(&["new", "2nd"]);
    assert!(!success && error.contains("begin with a letter"), "{error}");
    let inside_a_file = folder.join("README.md/inner");
    let (success, _, error) = command(&["new", inside_a_file.to_str().expect("it is text")]);
    assert!(!success && error.contains("cannot write"), "{error}");
    std::fs::remove_dir_all(folder).expect("it is there");
}

#[test]
fn top_writes_readings_until_its_time_is_up() {
    let file = temporary_file("top.csv");
    let path = file.to_str().expect("it is text");
    let (success, _, error) =
        command(&["top", "--csv", path, "--interval", "0.1", "--for", "0.25"]);
    assert!(success, "{error}");
    let text = std::fs::read_to_string(&file).expect("it was written");
    assert!(text.starts_with("date,seconds,kind,name,"), "{text}");
    let (success, text, _) = command(&["top", "--csv", "-", "--interval", "0.1", "--for", "0.1"]);
    assert!(success && text.starts_with("date,"), "{text}");

    let missing = temporary_file("no-such-folder/top.csv");
    let (success, _, error) = command(&["top", "--csv", missing.to_str().expect("it is text")]);
    assert!(!success && error.contains("does not exist"), "{error}");
    let (success, _, error) = command(&["top", "--csv", "/dev/full", "--for", "0.1"]);
    assert!(!cfg!(target_os = "linux") || (!success && error.contains("cannot write")), "{error}");
    let (success, _, error) = command(&["top", "--for", "soon"]);
    assert!(!success && error.contains("number of seconds"), "{error}");
}
