//! Which digit is in a picture.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{App, prepare, submit};
use crate::classifier::Classify;
use crate::failure::Failure;
use crate::picture;

/// Answers a PNG or JPEG file with the digit in it, and the probabilities of all.
pub async fn classify(State(app): State<Arc<App>>, body: Bytes) -> Result<Json<Value>, Failure> {
    let requests = app.classifier.as_ref();
    let requests =
        requests.ok_or_else(|| Failure::NotFound("there is no model of digits".to_owned()))?;
    let decode =
        move || picture::decode(&body).map_err(|error| Failure::Request(error.to_string()));
    let picture = prepare(&app, decode).await?;
    let (reply, answer) = oneshot::channel();
    submit(requests, Classify { picture, reply })?;
    let gone = |_| Failure::Unavailable("the model of digits has ended".to_owned());
    Ok(Json(label(&answer.await.map_err(gone)??)))
}

/// Returns the digit and the probabilities as JSON.
pub fn label(probabilities: &[f32]) -> Value {
    let most = probabilities.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    json!({ "label": most.map(|(digit, _)| digit), "probabilities": probabilities })
}
