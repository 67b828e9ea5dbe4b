//! What a run has to say at its end: a few lines, a table that compares two devices, and JSON for programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::args::Args;
use crate::train::History;
use digits::data::Digits;

/// One training run on one device.
pub struct Run {
    /// The device as it was asked for: a word that --device takes.
    pub device: String,
    /// What that turned out to be.
    pub adapter: String,
    pub history: History,
    /// Operations that ran on the CPU for want of a kernel, and how often.
    pub fallbacks: BTreeMap<String, u64>,
}

impl Run {
    /// The adapter without what its description has in brackets at the end.
    pub fn name(&self) -> &str {
        self.adapter.split(" [").next().unwrap_or(&self.adapter)
    }

    pub fn mean_seconds(&self) -> Option<f64> {
        let seconds = &self.history.seconds;
        (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
    }

    /// The median epoch: unlike the mean, the first epoch's shader compilation does not sway it.
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

    /// How many times as fast as `cpu` this run was, by the median epoch.
    pub fn speedup(&self, cpu: &Run) -> Option<f64> {
        Some(cpu.median_seconds()? / self.median_seconds()?)
    }

    /// The lines at the end of a run.
    pub fn summary(&self) -> String {
        let history = &self.history;
        let accuracy = history.test_accuracy * 100.0;
        let mut text = String::new();
        if history.interrupted {
            text += &format!("interrupted after {} whole epochs: ", history.seconds.len());
        }
        text += &format!("test accuracy {accuracy:.2} % on {}", self.adapter);
        if let (Some(median), Some(first)) = (self.median_seconds(), history.first_step) {
            text += &format!("\nmedian epoch {median:.3} s, first step done after {first:.2} s");
        }
        if !self.fallbacks.is_empty() {
            let list = self.fallbacks.iter();
            let list: Vec<_> = list.map(|(op, n)| format!("{op} ({n}x)")).collect();
            text += &format!("\nran on the CPU for want of a kernel: {}", list.join(", "));
        }
        text
    }

    fn json(&self) -> Value {
        let history = &self.history;
        json!({
            "device": self.device,
            "adapter": self.adapter,
            "train_loss": history.train_loss,
            "test_accuracy": history.test_accuracy,
            "test_accuracies": history.test_accuracies,
            "seconds_per_epoch": history.seconds,
            "mean_seconds_per_epoch": self.mean_seconds(),
            "median_seconds_per_epoch": self.median_seconds(),
            "first_step_seconds": history.first_step,
            "interrupted": history.interrupted,
            "fallbacks": self.fallbacks,
        })
    }
}

/// Everything that was measured. Accuracies are shares from 0 to 1, times are seconds; `epochs` is what was asked for,
/// the lists hold an entry for each epoch that was finished. `compare` is the run on the CPU, or null.
pub fn json(args: &Args, digits: &Digits, run: &Run, cpu: Option<&Run>) -> Vec<u8> {
    let mut report = run.json();
    report["epochs"] = json!(args.epochs);
    report["batch"] = json!(args.batch);
    report["seed"] = json!(args.seed);
    report["learning_rate"] = json!(args.learning_rate);
    report["train_images"] = json!(digits.train.labels.len());
    report["test_images"] = json!(digits.test.labels.len());
    report["compare"] = cpu.map_or(Value::Null, |cpu| {
        let mut compare = cpu.json();
        compare["speedup"] = json!(run.speedup(cpu));
        compare
    });
    format!("{report:#}\n").into_bytes()
}

/// Both runs side by side, epoch by epoch.
pub fn table(run: &Run, cpu: &Run) -> String {
    let both = [run, cpu];
    let mut text = format!("{:5}", "");
    for run in both {
        let name: String = run.name().chars().take(27).collect();
        text += &format!("   {name:>27}");
    }
    text += "\nepoch";
    text += &format!("   {:>7} {:>10} {:>8}", "loss", "test acc.", "seconds").repeat(2);
    let epochs = both.map(|run| run.history.seconds.len());
    for epoch in 0..epochs[0].max(epochs[1]) {
        text += &format!("\n{:>5}", epoch + 1);
        for run in both {
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
    if let (Some(speedup), [Some(ours), Some(cpus)]) =
        (run.speedup(cpu), both.map(Run::median_seconds))
    {
        text += &format!(
            "\nmedian epoch: {ours:.3} s on {}, {cpus:.3} s on the CPU: {speedup:.2} times as fast as the CPU",
            run.name()
        );
    }
    text
}
