//! Prints one line per epoch.

use std::collections::BTreeMap;

use burn::train::metric::{MetricDefinition, MetricEntry};
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};

/// The means of an epoch by metric, as text.
type Means = BTreeMap<String, String>;

/// A renderer that prints one line per epoch.
#[derive(Default)]
pub struct EpochLines {
    /// The names of the metrics by id.
    names: BTreeMap<String, String>,
    train: Means,
    valid: Means,
}

impl EpochLines {
    /// Returns the name of a metric and its mean over the epoch so far.
    fn mean(&self, state: MetricState) -> (String, String) {
        let (MetricState::Generic(entry) | MetricState::Numeric(entry, _)) = state;
        let MetricEntry { metric_id, serialized_entry } = entry;
        let id = format!("{metric_id:?}");
        let name = self.names.get(&id).cloned().unwrap_or(id);
        // The text is `epoch MEAN - batch VALUE`.
        let text = serialized_entry.formatted;
        let mean = text.strip_prefix("epoch ").and_then(|text| text.split(" - ").next());
        (name, mean.unwrap_or(&text).to_owned())
    }
}

impl MetricsRendererTraining for EpochLines {
    fn update_train(&mut self, state: MetricState) {
        let (name, mean) = self.mean(state);
        self.train.insert(name, mean);
    }

    fn update_valid(&mut self, state: MetricState) {
        let (name, mean) = self.mean(state);
        self.valid.insert(name, mean);
    }

    fn render_train(&mut self, _item: TrainingProgress, _indicators: Vec<ProgressType>) {}

    fn render_valid(&mut self, item: TrainingProgress, _indicators: Vec<ProgressType>) {
        // The last batch of the test images ends the epoch.
        if item.progress.is_some_and(|progress| progress.items_processed >= progress.items_total) {
            let text = |means: &Means| {
                let texts: Vec<_> =
                    means.iter().map(|(name, mean)| format!("{name} {mean}")).collect();
                texts.join(", ")
            };
            let epoch = item.global_progress;
            println!(
                "epoch {:>3}/{}   training: {}   test: {}",
                epoch.items_processed,
                epoch.items_total,
                text(&self.train),
                text(&self.valid)
            );
        }
    }
}

impl MetricsRendererEvaluation for EpochLines {
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}

    fn render_test(&mut self, _item: EvaluationProgress, _indicators: Vec<ProgressType>) {}
}

impl MetricsRenderer for EpochLines {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.names.insert(format!("{:?}", definition.metric_id), definition.name);
    }
}
