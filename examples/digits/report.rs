//! The results of a run: a summary, a table that compares two devices, and a JSON report.

use std::collections::BTreeMap;

use burn_wgsl::Precision;
use serde_json::{Value, json};

use crate::args::Args;
use crate::train::History;
use digits::data::Dataset;

/// One training run on one device.
pub struct Run {
    /// The requested device, as a selector for --device.
    pub device: String,
    /// Description of the device: name, kind and API of the adapter, or `CPU`.
    pub adapter: String,
    /// The type in which products were computed, if the command line chose it.
    pub precision: Option<Precision>,
    /// Images per training step.
    pub batch: usize,
    pub history: History,
    /// The checksum of the trained weights.
    pub fingerprint: u32,
    /// The ops that fell back to the CPU, and how often.
    pub fallbacks: BTreeMap<String, u64>,
}

impl Run {
    /// Returns the name of the adapter, without its kind and API.
    pub fn name(&self) -> &str {
        self.adapter.split(" [").next().unwrap_or(&self.adapter)
    }

    /// Returns the heading of a column: the start of the name, and the precision if the command line chose it.
    fn heading(&self, width: usize) -> String {
        let precision = self.precision.map_or(String::new(), |precision| format!(", {precision}"));
        let name: String = self.name().chars().take(width - precision.len()).collect();
        format!("{name}{precision}")
    }

    /// Returns the mean time of an epoch.
    pub fn mean_seconds(&self) -> Option<f64> {
        let seconds = &self.history.seconds;
        (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
    }

    /// Returns the median time of an epoch. Unlike the mean, it is not affected by the shader
    /// compilation in the first epoch.
    pub fn median_seconds(&self) -> Option<f64> {
        let mut seconds = self.history.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        let middle = seconds.len() / 2;
        match seconds.len() {
            0 => None,
            n if n % 2 == 1 => Some(seconds[middle]),
            _ => Some(f64::midpoint(seconds[middle - 1], seconds[middle])),
        }
    }

    /// Returns the speedup of this run over `cpu`, by median epoch time.
    pub fn speedup(&self, cpu: &Run) -> Option<f64> {
        Some(cpu.median_seconds()? / self.median_seconds()?)
    }

    /// Returns the lines to print at the end of the run.
    pub fn summary(&self) -> String {
        let history = &self.history;
        let accuracy = history.test_accuracy * 100.0;
        let mut text = String::new();
        if history.interrupted {
            text += &format!("interrupted after {} complete epochs: ", history.seconds.len());
        }
        text += &format!("test accuracy {accuracy:.2} % on {}", self.adapter);
        if let (Some(median), Some(first)) = (self.median_seconds(), history.first_step) {
            text += &format!(
                "\nmedian epoch {median:.3} s, first training step finished after {first:.2} s"
            );
        }
        if let Some(skipped) = history.skipped_steps {
            text += &format!("\nsteps skipped for gradients that f16 cannot hold: {skipped}");
        }
        if !self.fallbacks.is_empty() {
            let fallbacks = self.fallbacks.iter();
            let fallbacks: Vec<_> = fallbacks.map(|(op, n)| format!("{op} ({n}x)")).collect();
            text += &format!("\nops that fell back to the CPU: {}", fallbacks.join(", "));
        }
        text
    }

    fn json(&self) -> Value {
        let history = &self.history;
        json!({
            "device": self.device,
            "adapter": self.adapter,
            "precision": self.precision.map(|precision| precision.to_string()),
            "train_loss": history.train_loss,
            "test_accuracy": history.test_accuracy,
            "test_accuracies": history.test_accuracies,
            "seconds_per_epoch": history.seconds,
            "mean_seconds_per_epoch": self.mean_seconds(),
            "median_seconds_per_epoch": self.median_seconds(),
            "first_step_seconds": history.first_step,
            "skipped_steps": history.skipped_steps,
            "interrupted": history.interrupted,
            "fingerprint": self.fingerprint,
            "fallbacks": self.fallbacks,
        })
    }
}

/// Returns the JSON report.
///
/// Accuracies are fractions from 0 to 1, times are in seconds. `epochs` is the requested number.
/// The lists have one entry for each completed epoch. `compare` is the run on the CPU, or null.
pub fn json(args: &Args, dataset: &Dataset, run: &Run, cpu: Option<&Run>) -> Vec<u8> {
    let mut report = run.json();
    report["epochs"] = json!(args.epochs);
    report["batch"] = json!(run.batch);
    report["seed"] = json!(args.seed);
    report["learning_rate"] = json!(args.learning_rate);
    report["train_images"] = json!(dataset.train.labels.len());
    report["test_images"] = json!(dataset.test.labels.len());
    report["compare"] = cpu.map_or(Value::Null, |cpu| {
        let mut compare = cpu.json();
        compare["speedup"] = json!(run.speedup(cpu));
        compare
    });
    format!("{report:#}\n").into_bytes()
}

/// Returns a table of both runs, side by side, with one line per epoch.
pub fn table(run: &Run, cpu: &Run) -> String {
    let runs = [run, cpu];
    let mut text = format!("{:5}", "");
    for run in runs {
        text += &format!("   {:>27}", run.heading(27));
    }
    text += "\nepoch";
    text += &format!("   {:>7} {:>10} {:>8}", "loss", "test acc.", "seconds").repeat(2);
    let epochs = runs.map(|run| run.history.seconds.len());
    for epoch in 0..epochs[0].max(epochs[1]) {
        text += &format!("\n{:>5}", epoch + 1);
        for run in runs {
            let history = &run.history;
            text += &match history.seconds.get(epoch) {
                Some(seconds) => format!(
                    "   {:>7.4} {:>8.2} % {seconds:>8.3}",
                    history.train_loss[epoch],
                    history.test_accuracies[epoch] * 100.0,
                ),
                None => format!("   {:>27}", "-"),
            };
        }
    }
    if let (Some(speedup), [Some(median), Some(cpu_median)]) =
        (run.speedup(cpu), runs.map(Run::median_seconds))
    {
        text += &format!(
            "\nmedian epoch: {median:.3} s on {}, {cpu_median:.3} s on the CPU; \
             {speedup:.2} times as fast as the CPU",
            run.name()
        );
    }
    text
}
