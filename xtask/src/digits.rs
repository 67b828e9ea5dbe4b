//! Running the digits example and judging what it reports.

use crate::run::{cargo, run as run_command};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

pub struct Run<'a> {
    /// The word for `--device`; none leaves the choice to the program.
    pub device: Option<&'a str>,
    pub epochs: usize,
    /// Where the report goes.
    pub json: PathBuf,
}

/// Trains, with the environment as `prepare` leaves it, and reads the report.
pub fn run(
    run: Run<'_>,
    prepare: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<Value, String> {
    let path = run.json.display();
    // A report of an earlier run must not pass for this one's.
    match std::fs::remove_file(&run.json) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{path} cannot be removed: {error}"));
        }
        _ => {}
    }
    let mut command = cargo(
        &"run --release --locked --all-features --example digits --".split(' ').collect::<Vec<_>>(),
    );
    if let Some(device) = run.device {
        command.args(["--device", device]);
    }
    command.args(["--epochs", &run.epochs.to_string(), "--json"]);
    command.arg(&run.json);
    // A word left in the user's shell would stand in for the automatic choice.
    command.env_remove("BURN_WGSL_DEVICE");
    run_command(prepare(&mut command))?;
    let text = std::fs::read_to_string(&run.json)
        .map_err(|error| format!("{path} was to be written and cannot be read: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{path} is not JSON: {error}"))
}

/// The loss falls and the accuracy is far from chance.
pub fn learned(report: &Value, epochs: usize) -> Result<(), String> {
    let losses: Vec<f64> = report["train_loss"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_f64).collect())
        .unwrap_or_default();
    let accuracy = report["test_accuracy"].as_f64();
    println!("    train_loss {losses:.4?}, test_accuracy {accuracy:?}");
    // Infinite and undefined numbers have no JSON form and arrive as null, so they are missing from the list.
    if losses.len() != epochs {
        return Err(format!(
            "train_loss should hold {epochs} numbers, one an epoch: {}",
            report["train_loss"]
        ));
    }
    if losses.last() >= losses.first() {
        return Err(format!("the training loss does not fall: {losses:?}"));
    }
    match accuracy {
        Some(accuracy) if accuracy > 0.7 && accuracy <= 1.0 => Ok(()),
        _ => Err(format!(
            "test_accuracy should be above 0.7 and at most 1: {}",
            report["test_accuracy"]
        )),
    }
}

/// The run took place on the CPU.
pub fn ran_on_cpu(report: &Value) -> Result<(), String> {
    if says_cpu(report) {
        return Ok(());
    }
    Err(format!("should have run on the CPU, {}", place(report)))
}

/// The run took place on a GPU or a software adapter, all of it.
pub fn ran_on_gpu(report: &Value, word: &str) -> Result<(), String> {
    if says_cpu(report) {
        return Err(format!("should have run on `{word}`, {}", place(report)));
    }
    match report["fallbacks"].as_object() {
        Some(ops) if ops.is_empty() => Ok(()),
        _ => Err(format!("fallbacks to the CPU should be an empty map: {}", report["fallbacks"])),
    }
}

/// A device chosen by name says itself what it is; for an automatic choice the adapter tells.
fn says_cpu(report: &Value) -> bool {
    let word = |key: &str| {
        let text = report[key].as_str().unwrap_or_default();
        text.to_ascii_lowercase()
    };
    match word("device").as_str() {
        "" | "auto" | "default" => word("adapter").starts_with("cpu"),
        device => device == "cpu",
    }
}

fn place(report: &Value) -> String {
    format!("but the report says device {}, adapter {}", report["device"], report["adapter"])
}

#[cfg(test)]
mod checks {
    use super::*;
    use serde_json::json;

    #[test]
    fn learning_is_judged() {
        let report =
            |loss: Value, accuracy: Value| json!({ "train_loss": loss, "test_accuracy": accuracy });
        assert!(learned(&report(json!([2.1, 1.0, 0.5]), json!(0.9)), 3).is_ok());
        assert!(learned(&report(json!([2.1, 1.0]), json!(0.9)), 3).is_err());
        assert!(learned(&report(json!([2.1, null, 0.5]), json!(0.9)), 3).is_err());
        assert!(learned(&report(json!([0.5, 1.0, 2.1]), json!(0.9)), 3).is_err());
        assert!(learned(&report(json!([2.1, 1.0, 0.5]), json!(0.3)), 3).is_err());
        // Percent instead of a share.
        assert!(learned(&report(json!([2.1, 1.0, 0.5]), json!(94.0)), 3).is_err());
        assert!(learned(&json!({}), 3).is_err());
    }

    #[test]
    fn the_place_is_judged() {
        let cpu = json!({ "device": "Cpu", "adapter": "anything", "fallbacks": {} });
        let chosen = json!({ "device": "auto", "adapter": "CPU (burn-flex)", "fallbacks": {} });
        for report in [cpu, chosen] {
            assert!(ran_on_cpu(&report).is_ok());
            assert!(ran_on_gpu(&report, "software").is_err());
        }
        let software =
            json!({ "device": "software", "adapter": "llvmpipe (Cpu)", "fallbacks": {} });
        assert!(ran_on_cpu(&software).is_err());
        assert!(ran_on_gpu(&software, "software").is_ok());
        let slow = json!({ "device": "software", "adapter": "llvmpipe", "fallbacks": { "float_sort": 3 } });
        assert!(ran_on_gpu(&slow, "software").unwrap_err().contains("float_sort"));
        assert!(ran_on_gpu(&json!({ "device": "software" }), "software").is_err());
    }
}
