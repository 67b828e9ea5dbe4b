//! The server: routes, limits, and what all answers share.

mod answer;
mod classify;
mod completions;
mod connections;
mod request;
mod status;
mod text;

pub use classify::label;
pub use connections::{Limits, serve};
pub use status::{Health, Status};
pub use text::TextModel;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use burn_wgsl::serve::{Refusal, Refused, Requests};
use tokio::sync::Semaphore;

use crate::classifier::Classify;
use crate::failure::Failure;
use crate::writer::Write;

/// What all requests share.
pub struct App {
    pub status: Arc<Status>,
    /// The model of digits, if there is one.
    pub classifier: Option<Requests<Classify>>,
    /// The model of text, if there is one.
    pub text: Option<Arc<TextModel>>,
    /// The most bytes of a request.
    pub body: usize,
    /// How long a request may take until its answer begins, and a text until it ends.
    pub timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub silence: Duration,
    /// Pictures and texts that are prepared at once: this takes memory and processors.
    pub preparing: Arc<Semaphore>,
}

/// Returns the routes.
pub fn routes(app: Arc<App>) -> Router {
    let limited = middleware::from_fn_with_state(app.clone(), limit);
    Router::new()
        .route("/v1/classify", post(classify::classify))
        .route("/v1/completions", post(completions::complete))
        .route("/v1/chat/completions", post(completions::chat))
        .route("/v1/models", get(completions::models))
        .route("/v1/models/{name}", get(completions::model))
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/metrics", get(status::metrics))
        .fallback(|| async { Failure::NotFound("there is no such address".to_owned()) })
        .method_not_allowed_fallback(|| async { Failure::Method })
        .layer(limited)
        // The body is limited where it is read.
        .layer(DefaultBodyLimit::disable())
        .with_state(app)
}

/// Reads the body of a request, ends one that takes too long, and counts the answers.
async fn limit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    // Clients can make up any number of other addresses.
    let path = path.map_or("other", MatchedPath::as_str).to_owned();
    let start = Instant::now();
    let answer = async {
        let (head, body) = request.into_parts();
        let body = tokio::time::timeout(app.silence, to_bytes(body, app.body)).await;
        let body = body.map_err(|_| Failure::Slow(app.silence.as_secs()))?;
        let body = body.map_err(|error| body_failure(&error, app.body))?;
        Ok::<_, Failure>(next.run(Request::from_parts(head, Body::from(body))).await)
    };
    let answer = tokio::time::timeout(app.timeout, answer).await;
    let answer = answer.unwrap_or_else(|_| Err(Failure::Timeout(app.timeout.as_secs())));
    let answer = answer.unwrap_or_else(IntoResponse::into_response);
    let metrics = &app.status.metrics;
    metrics
        .seconds
        .get_or_create(&vec![("path", path.clone())])
        .observe(start.elapsed().as_secs_f64());
    let status = answer.status().as_u16().to_string();
    metrics.requests.get_or_create(&vec![("path", path), ("status", status)]).inc();
    answer
}

/// Returns why a body cannot be read.
fn body_failure(error: &axum::Error, most: usize) -> Failure {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return Failure::TooLarge(most);
        }
        cause = error.source();
    }
    Failure::Request(format!("the body cannot be read: {error}"))
}

/// Does work that takes a processor and memory, on a thread for it.
async fn prepare<T: Send + 'static>(
    app: &App,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let permit = app.preparing.clone().acquire_owned().await.expect("it is never closed");
    let done = tokio::task::spawn_blocking(move || {
        // It is kept if the client goes away: the work goes on.
        let _permit = permit;
        work()
    });
    done.await.unwrap_or_else(|_| Err(Failure::Request("the request cannot be read".to_owned())))
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, kind) = match &self {
            Self::Request(_) => (StatusCode::BAD_REQUEST, "invalid_request_error"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error"),
            Self::Slow(_) => (StatusCode::REQUEST_TIMEOUT, "invalid_request_error"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "invalid_request_error"),
            Self::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error"),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "server_error"),
            Self::Timeout(_) => (StatusCode::GATEWAY_TIMEOUT, "server_error"),
            Self::Device(_) | Self::Model(_) => (StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
        };
        let body = Json(error_object(&self, kind));
        match status {
            StatusCode::TOO_MANY_REQUESTS => (status, [("retry-after", "1")], body).into_response(),
            _ => (status, body).into_response(),
        }
    }
}

/// An error as OpenAI's API has it.
fn error_object(failure: &Failure, kind: &str) -> serde_json::Value {
    serde_json::json!({ "error": { "message": failure.to_string(), "type": kind } })
}

/// Reads a request.
fn parsed<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, Failure> {
    body.map(|Json(value)| value).map_err(|rejection| Failure::Request(rejection.body_text()))
}

/// A request of a client that may go away.
pub trait Abandoned {
    /// Returns whether nobody waits for the answer.
    fn is_abandoned(&self) -> bool;
}

impl Abandoned for Classify {
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

impl Abandoned for Write {
    fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }
}

/// Puts a request into the queue of a model.
fn submit<T: Abandoned>(requests: &Requests<T>, request: T) -> Result<(), Failure> {
    let result = match requests.send(request) {
        Err(Refused { request, reason: Refusal::Full(_) }) => {
            requests.discard(T::is_abandoned);
            requests.send(request)
        }
        result => result,
    };
    result.map_err(|Refused { reason, .. }| match reason {
        Refusal::Full(_) => Failure::Busy(reason.to_string()),
        Refusal::Closed => Failure::Unavailable(reason.to_string()),
    })
}
