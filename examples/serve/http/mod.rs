//! The server: routes, limits, and what all answers share.

mod classify;
mod completions;
mod connections;
mod status;
mod text;

pub use classify::label;
pub use connections::{Limits, serve};
pub use status::{Health, Status};
pub use text::TextModel;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::rejection::{BytesRejection, JsonRejection};
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use burn_wgsl::serve::{Refusal, Refused, Requests};

use crate::classifier::Classify;
use crate::failure::Failure;

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
}

/// Returns the routes.
pub fn routes(app: Arc<App>) -> Router {
    let limited = middleware::from_fn_with_state(app.clone(), limit_time);
    Router::new()
        .route("/v1/classify", post(classify::classify))
        .route("/v1/completions", post(completions::complete))
        .route("/v1/chat/completions", post(completions::chat))
        .route("/v1/models", get(completions::models))
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/metrics", get(status::metrics))
        .fallback(|| async { Failure::NotFound("there is no such address".to_owned()) })
        .method_not_allowed_fallback(|| async { StatusCode::METHOD_NOT_ALLOWED })
        .layer(limited)
        .layer(DefaultBodyLimit::max(app.body))
        .with_state(app)
}

/// Ends a request that takes too long, and counts it.
async fn limit_time(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    // Addresses that there are not are one: anybody can make them up.
    let path = path.map_or("other", MatchedPath::as_str).to_owned();
    let start = Instant::now();
    let answer = tokio::time::timeout(app.timeout, next.run(request)).await;
    let answer = answer.unwrap_or_else(|_| Failure::Timeout(app.timeout.as_secs()).into_response());
    let metrics = &app.status.metrics;
    metrics
        .seconds
        .get_or_create(&vec![("path", path.clone())])
        .observe(start.elapsed().as_secs_f64());
    let status = answer.status().as_u16().to_string();
    metrics.requests.get_or_create(&vec![("path", path), ("status", status)]).inc();
    answer
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, kind) = match &self {
            Self::Request(_) => (StatusCode::BAD_REQUEST, "invalid_request_error"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "invalid_request_error"),
            Self::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error"),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "server_error"),
            Self::Timeout(_) => (StatusCode::GATEWAY_TIMEOUT, "server_error"),
            Self::Device(_) => (StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
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

impl App {
    /// Returns why a body cannot be read.
    fn body_failure(&self, status: StatusCode, text: String) -> Failure {
        match status {
            StatusCode::PAYLOAD_TOO_LARGE => Failure::TooLarge(self.body),
            _ => Failure::Request(text),
        }
    }

    fn json<T>(&self, body: Result<Json<T>, JsonRejection>) -> Result<T, Failure> {
        let failure =
            |rejection: JsonRejection| self.body_failure(rejection.status(), rejection.body_text());
        body.map(|Json(value)| value).map_err(failure)
    }

    fn bytes(
        &self,
        body: Result<axum::body::Bytes, BytesRejection>,
    ) -> Result<axum::body::Bytes, Failure> {
        body.map_err(|rejection| self.body_failure(rejection.status(), rejection.body_text()))
    }
}

/// Puts a request into the queue of a model.
fn submit<T>(requests: &Requests<T>, request: T) -> Result<(), Failure> {
    requests.send(request).map_err(|Refused { reason, .. }| match reason {
        Refusal::Full(_) => Failure::Busy(reason.to_string()),
        Refusal::Closed => Failure::Unavailable(reason.to_string()),
    })
}
