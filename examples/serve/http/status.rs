//! Whether the server works, and what it counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::App;
use crate::metrics::Metrics;

/// Whether the models work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Models are loaded, and kernels compiled.
    Starting,
    /// Requests are accepted.
    Ready,
    /// What was accepted is answered.
    Ending,
    /// The thread of a model has ended: its device fails, or the model cannot be loaded.
    Failed,
}

/// The state of the server.
#[derive(Debug, Default)]
pub struct Status {
    pub metrics: Metrics,
    /// Models that are not ready yet.
    starting: AtomicUsize,
    is_ending: AtomicBool,
    has_failed: AtomicBool,
}

impl Status {
    /// Creates the state of a server of so many models, none of which is ready.
    pub fn new(models: usize) -> Self {
        Self { starting: AtomicUsize::new(models), ..Self::default() }
    }

    /// Notes that a model is ready.
    pub fn set_ready(&self) {
        self.starting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that the server ends.
    pub fn set_ending(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Notes that the thread of a model has ended with an error.
    pub fn set_failed(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the models work.
    pub fn health(&self) -> Health {
        if self.has_failed.load(Ordering::Relaxed) {
            Health::Failed
        } else if self.is_ending.load(Ordering::Relaxed) {
            Health::Ending
        } else if self.starting.load(Ordering::Relaxed) > 0 {
            Health::Starting
        } else {
            Health::Ready
        }
    }
}

/// Answers whether the process works: it ends soon after a failure, so that a supervisor starts another one.
pub async fn health(State(app): State<Arc<App>>) -> impl IntoResponse {
    match app.status.health() {
        Health::Failed => (StatusCode::INTERNAL_SERVER_ERROR, "a model has failed\n"),
        _ => (StatusCode::OK, "ok\n"),
    }
}

/// Answers whether requests should be sent here.
pub async fn ready(State(app): State<Arc<App>>) -> impl IntoResponse {
    match app.status.health() {
        Health::Ready => (StatusCode::OK, "ready\n"),
        Health::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        Health::Ending => (StatusCode::SERVICE_UNAVAILABLE, "ending\n"),
        Health::Failed => (StatusCode::SERVICE_UNAVAILABLE, "a model has failed\n"),
    }
}

/// Answers what the server counts.
pub async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let metrics = &app.status.metrics;
    let set = |model: &str, waiting: usize| {
        let gauge = metrics.waiting.get_or_create(&vec![("model", model.to_owned())]);
        gauge.set(waiting as i64);
    };
    if let Some(requests) = &app.classifier {
        set("digits", requests.waiting());
    }
    if let Some(text) = &app.text {
        set("text", text.requests.waiting());
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], metrics.text())
}
