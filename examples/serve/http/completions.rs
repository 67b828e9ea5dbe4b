//! Text, as OpenAI's API has it: `/v1/completions`, `/v1/chat/completions` and `/v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use llama::chat::{self, Message};
use llama::tokenizer::TokenizerError;
use serde_json::{Value, json};

use super::answer::{Answer, Kind, send};
use super::request::{ChatMessage, ChatRequest, CompletionRequest};
use super::text::TextModel;
use super::{App, parsed, prepare};
use crate::failure::Failure;

/// The tokens of a completion, if a request does not say.
const DEFAULT_TOKENS: usize = 16;

/// The roles of messages.
const ROLES: [&str; 3] = ["system", "user", "assistant"];

/// Returns why a text has no tokens.
fn no_tokens(error: TokenizerError) -> Failure {
    Failure::Request(error.to_string())
}

/// Continues a text.
pub async fn complete(
    State(app): State<Arc<App>>,
    body: Result<Json<CompletionRequest>, JsonRejection>,
) -> Result<Response, Failure> {
    let CompletionRequest { prompt, options } = parsed(body)?;
    let model = options.model(&app)?;
    let [prompt] = <[String; 1]>::try_from(prompt.into_list()).map_err(|prompts| {
        Failure::Request(format!("there are {} prompts: one can be continued", prompts.len()))
    })?;
    let of_model = model.clone();
    let tokenize = move || of_model.tokens.prompt(&prompt).map_err(no_tokens);
    let prompt = prepare(&app, tokenize).await?;
    let form = options.form();
    let text = model.begin(options.text(prompt, Some(DEFAULT_TOKENS))?)?;
    send(Answer::new(Kind::Completion, &model), text, form, app.timeout).await
}

/// Answers a message.
pub async fn chat(
    State(app): State<Arc<App>>,
    body: Result<Json<ChatRequest>, JsonRejection>,
) -> Result<Response, Failure> {
    let ChatRequest { messages, options } = parsed(body)?;
    let model = options.model(&app)?;
    if messages.is_empty() {
        return Err(Failure::Request("there are no messages".to_owned()));
    }
    let messages: Vec<Message> = messages.into_iter().map(ChatMessage::into_message).collect();
    if let Some(Message { role, .. }) = messages.iter().find(|m| !ROLES.contains(&&*m.role)) {
        return Err(Failure::Request(format!("the role {role:?} is none of {ROLES:?}")));
    }
    let of_model = model.clone();
    let tokenize = move || chat::prompt(&messages, &of_model.tokens).map_err(no_tokens);
    let prompt = prepare(&app, tokenize).await?;
    let form = options.form();
    let text = model.begin(options.text(prompt, None)?)?;
    send(Answer::new(Kind::Chat, &model), text, form, app.timeout).await
}

/// Lists the models.
pub async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    let models: Vec<Value> = app.text.iter().map(|text| described(text)).collect();
    Json(json!({ "object": "list", "data": models }))
}

/// Describes a model.
pub async fn model(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Failure> {
    let model = app.text.as_ref().filter(|text| text.name == name);
    let model = model.ok_or_else(|| Failure::NotFound(format!("there is no model {name:?}")))?;
    Ok(Json(described(model)))
}

fn described(model: &TextModel) -> Value {
    json!({ "id": model.name, "object": "model", "created": model.created, "owned_by": "user" })
}
