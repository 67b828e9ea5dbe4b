//! Text, as OpenAI's API has it: `/v1/completions`, `/v1/chat/completions` and `/v1/models`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use burn_wgsl::generate::Sampling;
use futures_util::stream;
use llama::chat::{self, Message};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::text::{Part, Text, TextModel, Wish};
use super::{App, error_object};
use crate::failure::Failure;
use crate::writer::End;

/// One string, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
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
    #[serde(default = "one")]
    temperature: f32,
    #[serde(default = "one")]
    top_p: f32,
    #[serde(default)]
    top_k: usize,
    seed: Option<u64>,
    stop: Option<Strings>,
    #[serde(default)]
    stream: bool,
    n: Option<u32>,
}

fn one() -> f32 {
    1.0
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
    content: String,
}

/// The tokens of a completion, if a request does not say.
const DEFAULT_TOKENS: usize = 16;

/// The most texts that end another.
const MAX_STOPS: usize = 4;

impl Options {
    /// Returns how a text is to be written.
    fn wish(self, prompt: Vec<u32>, default_limit: Option<usize>) -> Result<Wish, Failure> {
        let wrong = |what: &str| Err(Failure::Request(what.to_owned()));
        if self.n.is_some_and(|n| n != 1) {
            return wrong("n is not 1: there is one answer to a request");
        }
        if !(0.0..=100.0).contains(&self.temperature) {
            return wrong("temperature is not between 0 and 100");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return wrong("top_p is not above 0 and at most 1");
        }
        let stops = self.stop.map_or(Vec::new(), Strings::into_list);
        if stops.len() > MAX_STOPS || stops.iter().any(String::is_empty) {
            return wrong("stop has more than 4 texts, or an empty one");
        }
        let limit = self.max_completion_tokens.or(self.max_tokens).or(default_limit);
        // Without a seed, each answer is another.
        let seed = self.seed.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            now.as_nanos() as u64 ^ next_number().rotate_left(32)
        });
        let Self { temperature, top_p, top_k, .. } = self;
        Ok(Wish { prompt, limit, sampling: Sampling { temperature, top_k, top_p }, seed, stops })
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

/// Splits a text into tokens, on a thread that may take its time.
async fn tokens<F>(tokenize: F) -> Result<Vec<u32>, Failure>
where
    F: FnOnce() -> Result<Vec<u32>, llama::tokenizer::TokenizerError> + Send + 'static,
{
    let tokens = tokio::task::spawn_blocking(tokenize).await;
    let tokens = tokens.map_err(|_| Failure::Request("the text has no tokens".to_owned()))?;
    tokens.map_err(|error| Failure::Request(error.to_string()))
}

/// Continues a text.
pub async fn complete(
    State(app): State<Arc<App>>,
    body: Result<Json<CompletionRequest>, JsonRejection>,
) -> Result<Response, Failure> {
    let CompletionRequest { prompt, options } = app.json(body)?;
    let model = options.model(&app)?;
    let [prompt] = <[String; 1]>::try_from(prompt.into_list()).map_err(|prompts| {
        Failure::Request(format!("there are {} prompts: one can be continued", prompts.len()))
    })?;
    let of_model = model.clone();
    let prompt = tokens(move || of_model.tokens.prompt(&prompt)).await?;
    let stream = options.stream;
    let wish = options.wish(prompt, Some(DEFAULT_TOKENS))?;
    let text = model.begin(wish)?;
    answer(Answer::new(Kind::Completion, &model), text, stream, app.timeout).await
}

/// Answers a message.
pub async fn chat(
    State(app): State<Arc<App>>,
    body: Result<Json<ChatRequest>, JsonRejection>,
) -> Result<Response, Failure> {
    let ChatRequest { messages, options } = app.json(body)?;
    let model = options.model(&app)?;
    if messages.is_empty() {
        return Err(Failure::Request("there are no messages".to_owned()));
    }
    const ROLES: [&str; 3] = ["system", "user", "assistant"];
    if let Some(ChatMessage { role, .. }) = messages.iter().find(|m| !ROLES.contains(&&*m.role)) {
        return Err(Failure::Request(format!("the role {role:?} is none of {ROLES:?}")));
    }
    let messages: Vec<Message> = messages
        .into_iter()
        .map(|ChatMessage { role, content }| Message { role, content })
        .collect();
    let of_model = model.clone();
    let prompt = tokens(move || chat::prompt(&messages, &of_model.tokens)).await?;
    let stream = options.stream;
    let text = model.begin(options.wish(prompt, None)?)?;
    answer(Answer::new(Kind::Chat, &model), text, stream, app.timeout).await
}

/// Lists the models.
pub async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    let model = |name: &str| json!({ "id": name, "object": "model", "owned_by": "user" });
    let models: Vec<Value> = app.text.iter().map(|text| model(&text.name)).collect();
    Json(json!({ "object": "list", "data": models }))
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
        let finish = finish(end);
        let mut whole = match self.kind {
            Kind::Completion => self.object(
                "text_completion",
                json!({ "index": 0, "text": content, "finish_reason": finish, "logprobs": null }),
            ),
            Kind::Chat => self.object(
                "chat.completion",
                json!({
                    "index": 0,
                    "message": { "role": "assistant", "content": content },
                    "finish_reason": finish,
                    "logprobs": null,
                }),
            ),
        };
        whole["usage"] = json!({
            "prompt_tokens": text.prompt,
            "completion_tokens": text.written,
            "total_tokens": text.prompt + text.written,
        });
        whole
    }

    /// Returns a part of an answer in a stream.
    fn part(&self, content: &str, end: Option<End>) -> Value {
        let finish = end.map(finish);
        match self.kind {
            Kind::Completion => self.object(
                "text_completion",
                json!({ "index": 0, "text": content, "finish_reason": finish, "logprobs": null }),
            ),
            Kind::Chat => self.object(
                "chat.completion.chunk",
                json!({ "index": 0, "delta": { "content": content }, "finish_reason": finish }),
            ),
        }
    }
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
    is_stream: bool,
    timeout: Duration,
) -> Result<Response, Failure> {
    if is_stream {
        return Ok(streamed(answer, text, timeout).into_response());
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
    /// Parts that are ready.
    ready: Vec<Event>,
    deadline: Instant,
    timeout: Duration,
}

/// Answers with the parts of a text as they are written.
fn streamed(answer: Answer, text: Text, timeout: Duration) -> impl IntoResponse {
    let mut ready = Vec::new();
    if answer.kind == Kind::Chat {
        let delta = json!({ "index": 0, "delta": { "role": "assistant", "content": "" }, "finish_reason": null });
        ready.push(event(&answer.object("chat.completion.chunk", delta)));
    }
    let deadline = Instant::now() + timeout;
    let state = Streamed { answer, text: Some(text), ready, deadline, timeout };
    Sse::new(stream::unfold(state, |mut state| async move {
        let event = state.next().await?;
        Some((Ok::<Event, Infallible>(event), state))
    }))
}

fn event(value: &Value) -> Event {
    Event::default().data(value.to_string())
}

impl Streamed {
    async fn next(&mut self) -> Option<Event> {
        if !self.ready.is_empty() {
            return Some(self.ready.remove(0));
        }
        let text = self.text.as_mut()?;
        let part = tokio::time::timeout_at(self.deadline, text.next()).await;
        let part = part.unwrap_or_else(|_| Err(Failure::Timeout(self.timeout.as_secs())));
        match part {
            Ok(Some(Part::Text(part))) => Some(event(&self.answer.part(&part, None))),
            Ok(Some(Part::End(part, end))) => {
                self.text = None;
                if !part.is_empty() {
                    self.ready.push(event(&self.answer.part("", Some(end))));
                    self.ready.push(Event::default().data("[DONE]"));
                    return Some(event(&self.answer.part(&part, None)));
                }
                self.ready.push(Event::default().data("[DONE]"));
                Some(event(&self.answer.part("", Some(end))))
            }
            Ok(None) => None,
            Err(failure) => {
                self.text = None;
                Some(event(&error_object(&failure, "server_error")))
            }
        }
    }
}
