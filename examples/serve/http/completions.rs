//! Text, as OpenAI's API has it: `/v1/completions`, `/v1/chat/completions` and `/v1/models`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use burn_wgsl::generate::Sampling;
use futures_util::stream;
use llama::chat::{self, Message};
use llama::tokenizer::TokenizerError;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::text::{Part, Text, TextModel, TextOptions};
use super::{App, error_object, json as parsed, prepare};
use crate::failure::Failure;
use crate::writer::End;

/// One string, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text, or a list of texts")]
enum Strings {
    One(String),
    Several(Vec<String>),
}

impl Strings {
    fn into_list(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Several(texts) => texts,
        }
    }
}

/// What both requests have. Fields that are not listed have no effect.
#[derive(Debug, Deserialize)]
struct Options {
    model: Option<String>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    seed: Option<i64>,
    stop: Option<Strings>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    // What would change the answer, but is not there.
    tools: Option<Value>,
    response_format: Option<Value>,
    logprobs: Option<Value>,
    logit_bias: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// A request for the rest of a text.
#[derive(Debug, Deserialize)]
pub struct CompletionRequest {
    prompt: Strings,
    #[serde(flatten)]
    options: Options,
}

/// A request for an answer.
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    messages: Vec<ChatMessage>,
    #[serde(flatten)]
    options: Options,
}

#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<Content>,
}

/// The text of a message, or parts of it.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text, or a list of parts of the type `text`")]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart {
    Text { text: String },
}

impl ChatMessage {
    fn into_message(self) -> Message {
        let content = match self.content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => {
                parts.into_iter().map(|ContentPart::Text { text }| text).collect()
            }
        };
        // OpenAI's newer name.
        let role = if self.role == "developer" { "system".to_owned() } else { self.role };
        Message { role, content }
    }
}

/// How an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Whole,
    Stream { include_usage: bool },
}

/// The tokens of a completion, if a request does not say.
const DEFAULT_TOKENS: usize = 16;

/// The roles of messages.
const ROLES: [&str; 3] = ["system", "user", "assistant"];

/// The most texts that end another.
const MAX_STOPS: usize = 4;

impl Options {
    /// Returns how a text is to be written.
    fn text(self, prompt: Vec<u32>, default_limit: Option<usize>) -> Result<TextOptions, Failure> {
        let wrong = |what: &str| Err(Failure::Request(what.to_owned()));
        if self.n.is_some_and(|n| n != 1) {
            return wrong("n is not 1: there is one answer to a request");
        }
        self.check_supported()?;
        let temperature = self.temperature.unwrap_or(1.0);
        if !(0.0..=100.0).contains(&temperature) {
            return wrong("temperature is not between 0 and 100");
        }
        let top_p = self.top_p.unwrap_or(1.0);
        if !(top_p > 0.0 && top_p <= 1.0) {
            return wrong("top_p is not above 0 and at most 1");
        }
        let stops = self.stop.map_or(Vec::new(), Strings::into_list);
        if stops.len() > MAX_STOPS || stops.iter().any(String::is_empty) {
            return wrong("stop has more than 4 texts, or an empty one");
        }
        let limit = self.max_completion_tokens.or(self.max_tokens).or(default_limit);
        // Answers without a seed differ.
        let seed = self.seed.map_or_else(
            || {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                now.as_nanos() as u64 ^ next_number().rotate_left(32)
            },
            |seed| seed as u64,
        );
        let sampling = Sampling { temperature, top_k: self.top_k.unwrap_or(0), top_p };
        Ok(TextOptions { prompt, limit, sampling, seed, stops })
    }

    /// Refuses options that would change the answer.
    fn check_supported(&self) -> Result<(), Failure> {
        let is_text = |format: &Value| format["type"] == "text";
        let options = [
            ("tools", &self.tools),
            ("response_format", &self.response_format),
            ("logprobs", &self.logprobs),
            ("logit_bias", &self.logit_bias),
        ];
        let changes = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(values) => !values.is_empty(),
            Value::Object(values) => !values.is_empty() && !is_text(value),
            _ => true,
        };
        let found = options.iter().find(|(_, value)| value.as_ref().is_some_and(changes));
        match found {
            Some((name, _)) => Err(Failure::Request(format!("{name} is not supported"))),
            None => Ok(()),
        }
    }

    /// Returns the form of the answer.
    fn form(&self) -> Form {
        let include_usage = self.stream_options.as_ref().and_then(|options| options.include_usage);
        match (self.stream.unwrap_or(false), include_usage.unwrap_or(false)) {
            (false, _) => Form::Whole,
            (true, include_usage) => Form::Stream { include_usage },
        }
    }

    /// Returns the model that is asked for.
    fn model(&self, app: &App) -> Result<Arc<TextModel>, Failure> {
        let none = || Failure::NotFound("there is no model of text".to_owned());
        let model = app.text.as_ref().ok_or_else(none)?;
        match &self.model {
            Some(name) if *name != model.name => {
                Err(Failure::NotFound(format!("there is no model {name:?}, but {:?}", model.name)))
            }
            _ => Ok(model.clone()),
        }
    }
}

fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

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
    answer(Answer::new(Kind::Completion, &model), text, form, app.timeout).await
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
    answer(Answer::new(Kind::Chat, &model), text, form, app.timeout).await
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Completion,
    Chat,
}

/// What all parts of an answer have.
#[derive(Debug, Clone)]
struct Answer {
    kind: Kind,
    id: String,
    created: u64,
    model: String,
}

impl Answer {
    fn new(kind: Kind, model: &TextModel) -> Self {
        let prefix = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let id = format!("{prefix}-{created:x}-{:x}", next_number());
        Self { kind, id, created, model: model.name.clone() }
    }

    fn object(&self, object: &str, choice: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": [choice],
        })
    }

    /// Returns the whole answer.
    fn whole(&self, content: &str, end: End, text: &Text) -> Value {
        let mut whole = match self.kind {
            Kind::Completion => self.completion(content, Some(end)),
            Kind::Chat => self.object(
                "chat.completion",
                json!({
                    "index": 0,
                    "message": { "role": "assistant", "content": content },
                    "finish_reason": finish(end),
                    "logprobs": null,
                }),
            ),
        };
        whole["usage"] = usage(text);
        whole
    }

    /// Returns a part of an answer in a stream.
    fn part(&self, content: &str, end: Option<End>) -> Value {
        match self.kind {
            Kind::Completion => self.completion(content, end),
            Kind::Chat => {
                let finish = end.map(finish);
                let delta = json!({ "content": content });
                self.object(
                    "chat.completion.chunk",
                    json!({ "index": 0, "delta": delta, "finish_reason": finish }),
                )
            }
        }
    }

    fn completion(&self, text: &str, end: Option<End>) -> Value {
        let finish = end.map(finish);
        self.object(
            "text_completion",
            json!({ "index": 0, "text": text, "finish_reason": finish, "logprobs": null }),
        )
    }

    /// Returns the last part of a stream, which has no text.
    fn usage_part(&self, text: &Text) -> Value {
        let mut part = self.part("", None);
        part["choices"] = json!([]);
        part["usage"] = usage(text);
        part
    }
}

fn usage(text: &Text) -> Value {
    json!({
        "prompt_tokens": text.prompt,
        "completion_tokens": text.written,
        "total_tokens": text.prompt + text.written,
    })
}

fn finish(end: End) -> &'static str {
    match end {
        End::Stop => "stop",
        End::Length => "length",
    }
}

async fn answer(
    answer: Answer,
    mut text: Text,
    form: Form,
    timeout: Duration,
) -> Result<Response, Failure> {
    if let Form::Stream { include_usage } = form {
        let deadline = Instant::now() + timeout;
        // What goes wrong before the first part has a status.
        let first = text.next().await?;
        let mut ready = VecDeque::new();
        if answer.kind == Kind::Chat {
            let mut role = answer.part("", None);
            role["choices"][0]["delta"]["role"] = json!("assistant");
            ready.push_back(event(&role));
        }
        let mut stream =
            Streamed { answer, text: Some(text), include_usage, ready, deadline, timeout };
        stream.add(first);
        return Ok(stream.into_response());
    }
    let mut content = String::new();
    let mut end = End::Length;
    while let Some(part) = text.next().await? {
        match part {
            Part::Text(part) => content += &part,
            Part::End(part, reason) => {
                content += &part;
                end = reason;
            }
        }
    }
    Ok(Json(answer.whole(&content, end, &text)).into_response())
}

/// The parts of an answer that is still to come.
struct Streamed {
    answer: Answer,
    /// `None` after the last part.
    text: Option<Text>,
    include_usage: bool,
    /// Parts that are ready.
    ready: VecDeque<Event>,
    deadline: Instant,
    timeout: Duration,
}

fn event(value: &Value) -> Event {
    Event::default().data(value.to_string())
}

impl Streamed {
    fn into_response(self) -> Response {
        let events = stream::unfold(self, |mut state| async move {
            let event = state.next().await?;
            Some((Ok::<Event, Infallible>(event), state))
        });
        // A text may wait for a place.
        Sse::new(events).keep_alive(KeepAlive::default()).into_response()
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let text = self.text.as_mut()?;
            let part = tokio::time::timeout_at(self.deadline, text.next()).await;
            match part.unwrap_or(Err(Failure::Timeout(self.timeout.as_secs()))) {
                Ok(part) => self.add(part),
                Err(failure) => {
                    self.text = None;
                    return Some(event(&error_object(&failure, "server_error")));
                }
            }
        }
    }

    /// Adds the events of a part.
    fn add(&mut self, part: Option<Part>) {
        let (content, end) = match part {
            Some(Part::Text(content)) => (content, None),
            Some(Part::End(content, end)) => (content, Some(end)),
            None => (String::new(), None),
        };
        if !content.is_empty() {
            self.ready.push_back(event(&self.answer.part(&content, None)));
        }
        let Some(end) = end else { return };
        self.ready.push_back(event(&self.answer.part("", Some(end))));
        if let Some(text) = self.text.take().filter(|_| self.include_usage) {
            self.ready.push_back(event(&self.answer.usage_part(&text)));
        }
        self.ready.push_back(Event::default().data("[DONE]"));
    }
}
