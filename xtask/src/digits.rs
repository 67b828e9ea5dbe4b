//! Runs the digits example and checks its report.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::process::{cargo, run_command, target_dir};

/// The options of one run of the example.
pub struct RunOptions<'a> {
    /// Device selector for `--device`; `None` lets the program choose.
    pub device: Option<&'a str>,
    pub epochs: usize,
    /// Path of the JSON report.
    pub json: PathBuf,
}

/// Runs the example and returns its JSON report. `configure` adds arguments and environment
/// variables to the command.
///
/// # Errors
///
/// Returns an error if the example fails or its report cannot be read.
pub fn run(
    options: RunOptions<'_>,
    configure: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<Value, String> {
    let path = options.json.display();
    // Remove the report of an earlier run, so that only the new one can be read.
    match std::fs::remove_file(&options.json) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("cannot remove {path}: {error}"));
        }
        _ => {}
    }
    // The build of the tests, not another one.
    let args = "build --workspace --locked --all-features --example digits";
    run_command(&mut cargo(&args.split(' ').collect::<Vec<_>>()))?;
    let mut command = Command::new(target_dir().join("debug/examples/digits"));
    if let Some(device) = options.device {
        command.args(["--device", device]);
    }
    command.args(["--epochs", &options.epochs.to_string(), "--json"]);
    command.arg(&options.json);
    // In the user's shell, this variable would override the automatic choice.
    command.env_remove("BURN_WGSL_DEVICE");
    run_command(configure(&mut command))?;
    let text = std::fs::read_to_string(&options.json)
        .map_err(|error| format!("cannot read the report {path} of the example: {error}"))?;
    serde_json::from_str(&text)
        .map_err(|error| format!("the report {path} is not valid JSON: {error}"))
}

/// Checks that the training loss fell and that the test accuracy is far above chance.
///
/// # Errors
///
/// Returns an error if `train_loss` does not hold one number per epoch, if its last number is not
/// below the first, or if `test_accuracy` is not above 0.7 and at most 1.
pub fn check_training(report: &Value, epochs: usize) -> Result<(), String> {
    let losses: Vec<f64> = report["train_loss"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_f64).collect())
        .unwrap_or_default();
    let accuracy = report["test_accuracy"].as_f64();
    println!("    train_loss {losses:.4?}, test_accuracy {accuracy:?}");
    // Infinities and NaN are null in JSON, so they are missing from `losses`.
    if losses.len() != epochs {
        return Err(format!(
            "expected {epochs} numbers in train_loss, one per epoch, found {}",
            report["train_loss"]
        ));
    }
    if losses.last() >= losses.first() {
        return Err(format!("the training loss did not fall: {losses:?}"));
    }
    match accuracy {
        Some(accuracy) if accuracy > 0.7 && accuracy <= 1.0 => Ok(()),
        _ => Err(format!(
            "expected test_accuracy above 0.7 and at most 1, found {}",
            report["test_accuracy"]
        )),
    }
}

/// Checks that the run used the CPU.
///
/// # Errors
///
/// Returns an error if the report names another device.
pub fn check_ran_on_cpu(report: &Value) -> Result<(), String> {
    if is_cpu(report) {
        return Ok(());
    }
    Err(format!("expected a run on the CPU, {}", reported_device(report)))
}

/// Checks that the run used a GPU or a software adapter, and that no op fell back to the CPU.
///
/// # Errors
///
/// Returns an error if the report names the CPU or lists a fallback.
pub fn check_ran_on_gpu(report: &Value, selector: &str) -> Result<(), String> {
    if is_cpu(report) {
        return Err(format!("expected a run on `{selector}`, {}", reported_device(report)));
    }
    match report["fallbacks"].as_object() {
        Some(ops) if ops.is_empty() => Ok(()),
        _ => Err(format!("expected no fallbacks to the CPU, found {}", report["fallbacks"])),
    }
}

/// Returns whether the run used the CPU, by the report's device selector. If the device was chosen
/// automatically, the adapter decides.
fn is_cpu(report: &Value) -> bool {
    let lowercase = |key: &str| {
        let text = report[key].as_str().unwrap_or_default();
        text.to_ascii_lowercase()
    };
    match lowercase("device").as_str() {
        "" | "auto" | "default" => lowercase("adapter").starts_with("cpu"),
        device => device == "cpu",
    }
}

fn reported_device(report: &Value) -> String {
    format!("but the report names device {} and adapter {}", report["device"], report["adapter"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn check_training_rejects_bad_losses_and_accuracies() {
        let report =
            |loss: Value, accuracy: Value| json!({ "train_loss": loss, "test_accuracy": accuracy });
        assert!(check_training(&report(json!([2.1, 1.0, 0.5]), json!(0.9)), 3).is_ok());
        assert!(check_training(&report(json!([2.1, 1.0]), json!(0.9)), 3).is_err());
        assert!(check_training(&report(json!([2.1, null, 0.5]), json!(0.9)), 3).is_err());
        assert!(check_training(&report(json!([0.5, 1.0, 2.1]), json!(0.9)), 3).is_err());
        assert!(check_training(&report(json!([2.1, 1.0, 0.5]), json!(0.3)), 3).is_err());
        // In percent instead of 0 to 1.
        assert!(check_training(&report(json!([2.1, 1.0, 0.5]), json!(94.0)), 3).is_err());
        assert!(check_training(&json!({}), 3).is_err());
    }

    #[test]
    fn device_checks_accept_only_the_expected_device() {
        let cpu = json!({ "device": "Cpu", "adapter": "anything", "fallbacks": {} });
        let automatic = json!({ "device": "auto", "adapter": "CPU (burn-flex)", "fallbacks": {} });
        for report in [cpu, automatic] {
            assert!(check_ran_on_cpu(&report).is_ok());
            assert!(check_ran_on_gpu(&report, "software").is_err());
        }
        let software =
            json!({ "device": "software", "adapter": "llvmpipe (Cpu)", "fallbacks": {} });
        assert!(check_ran_on_cpu(&software).is_err());
        assert!(check_ran_on_gpu(&software, "software").is_ok());
        let fallback = json!({
            "device": "software",
            "adapter": "llvmpipe",
            "fallbacks": { "float_sort": 3 }
        });
        assert!(check_ran_on_gpu(&fallback, "software").unwrap_err().contains("float_sort"));
        assert!(check_ran_on_gpu(&json!({ "device": "software" }), "software").is_err());
    }
}
