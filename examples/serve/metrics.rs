//! What the server counts, in the format of Prometheus.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// The labels of a request: the path of a route, and the status of its answer.
type Labels = Vec<(&'static str, String)>;

/// How a text ended. The status of a streamed text is sent with its first part, before this is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The model ended it.
    Stop,
    /// It has as many tokens as were asked for, or as there is room for.
    Length,
    /// The model or the device failed.
    Failed,
    /// Nobody reads it any more: its client went away, or a stop sequence was found.
    Left,
}

/// The number of texts that ended in each way.
#[derive(Debug, Default)]
pub struct Endings(Family<Labels, Counter>);

impl Endings {
    /// Counts texts.
    pub fn add(&self, ended: Ended, texts: u64) {
        let label = match ended {
            Ended::Stop => "stop",
            Ended::Length => "length",
            Ended::Failed => "failed",
            Ended::Left => "left",
        };
        self.0.get_or_create(&vec![("end", label.to_owned())]).inc_by(texts);
    }
}

/// The counters of the server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Requests by path and status.
    pub requests: Family<Labels, Counter>,
    /// Seconds until an answer begins, by path.
    pub seconds: Family<Labels, Histogram, fn() -> Histogram>,
    /// Requests that were answered together.
    pub batch_sizes: Histogram,
    /// Requests that wait for a model.
    pub waiting: Family<Labels, Gauge>,
    /// Texts that are being written.
    pub texts: Gauge,
    /// Texts that ended, but for those that made room in a full queue.
    pub ended: Endings,
    /// Tokens of prompts that were read.
    pub prompt_tokens: Counter,
    /// Tokens that were written.
    pub written_tokens: Counter,
    /// How often a device was opened again.
    pub reopened: Counter,
    /// Open connections.
    pub connections: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        // From half of a millisecond to a minute, and from 1 to 256.
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0005, 2.0, 18));
        let mut metrics = Self {
            registry: Registry::with_prefix("serve"),
            requests: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            batch_sizes: Histogram::new(exponential_buckets(1.0, 2.0, 9)),
            waiting: Family::default(),
            texts: Gauge::default(),
            ended: Endings::default(),
            prompt_tokens: Counter::default(),
            written_tokens: Counter::default(),
            reopened: Counter::default(),
            connections: Gauge::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("requests", "Requests that were answered", self.requests.clone());
        registry.register_with_unit(
            "answer",
            "Time until an answer begins",
            Unit::Seconds,
            self.seconds.clone(),
        );
        registry.register(
            "batch_size",
            "Pictures that were classified together",
            self.batch_sizes.clone(),
        );
        registry.register("waiting", "Requests that wait for a model", self.waiting.clone());
        registry.register("texts", "Texts that are being written", self.texts.clone());
        registry.register("ended_texts", "Texts that ended, and how", self.ended.0.clone());
        registry.register(
            "prompt_tokens",
            "Tokens of prompts that were read",
            self.prompt_tokens.clone(),
        );
        registry.register("tokens", "Tokens that were written", self.written_tokens.clone());
        registry.register(
            "reopened",
            "How often a device failed and was opened again",
            self.reopened.clone(),
        );
        registry.register("connections", "Open connections", self.connections.clone());
    }

    /// Returns all values as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes any text");
        text
    }
}
