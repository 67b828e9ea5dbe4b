use std::path::PathBuf;

use burn_wgsl::train::Stop;
use clap::Parser;
use serde_json::Value;

use crate::{Args, run};

/// A file in the folder for temporary files.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("gpt-{}-{name}", std::process::id()))
}

/// Runs the program on the CPU with a tiny model and the text, and returns its report.
fn train(name: &str, text: &str, options: &str) -> anyhow::Result<Value> {
    let [source, report] = ["txt", "json"].map(|ending| file(&format!("{name}.{ending}")));
    std::fs::write(&source, text)?;
    let line = format!(
        "gpt --device cpu --batch 4 --context 8 --width 16 --heads 2 --layers 1 --sample 5 \
         --learning-rate 0.02 {options}"
    );
    let mut args = Args::try_parse_from(line.split_whitespace())?;
    args.text = Some(source.clone());
    args.json = Some(report.clone());
    let result = run(&args, &Stop::new());
    std::fs::remove_file(&source)?;
    result?;
    let json = std::fs::read_to_string(&report)?;
    std::fs::remove_file(&report)?;
    Ok(serde_json::from_str(&json)?)
}

#[test]
fn each_precision_trains_a_model_of_its_own_to_the_same_loss() {
    let text = "abcdefghij".repeat(30);
    let report =
        train("precisions", &text, "--steps 30 --precision f32,f16,bf16").expect("it trains");
    let runs = report["runs"].as_array().expect("a list");
    let names: Vec<&Value> = runs.iter().map(|run| &run["precision"]).collect();
    assert_eq!(names, ["f32", "f16", "bf16"]);
    let losses: Vec<f64> =
        runs.iter().map(|run| run["test_loss"].as_f64().expect("a number")).collect();
    // The next letter is certain; guessing costs ln 10.
    assert!(losses[0] < 1.0, "{losses:?}");
    assert!(losses.iter().all(|loss| (loss / losses[0] - 1.0).abs() < 0.05), "{losses:?}");
    assert_eq!(runs[0]["skipped_steps"], Value::Null);
    assert!(runs[1]["skipped_steps"].is_u64(), "{report}");
}

#[test]
fn errors_name_the_cause() {
    let message = |text: &str, options: &str| {
        train("errors", text, options).expect_err("the run fails").to_string()
    };
    let short = message("abc", "--steps 1");
    assert!(short.contains("3 characters") && short.contains("more than 90"), "{short}");
    let unknown = message("abc", "--precision f64");
    assert!(unknown.contains("f64") && unknown.contains("bf16"), "{unknown}");
    let none = message("abc", "--steps 0");
    assert!(none.contains("--steps"), "{none}");
    let cold = message("abc", "--temperature=-1");
    assert!(cold.contains("at least 0"), "{cold}");
}
