//! Answers with text, as OpenAI's API has them: whole, or in parts as they are written.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::error_object;
use super::text::{Part, Text, TextModel};
use crate::failure::Failure;
use crate::writer::End;

/// How an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Whole,
    Stream { include_usage: bool },
}

/// Returns a number that no other answer of this process has.
pub fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Completion,
    Chat,
}

/// What all parts of an answer have.
#[derive(Debug, Clone)]
pub struct Answer {
    kind: Kind,
    id: String,
    created: u64,
    model: String,
}

impl Answer {
    /// Begins an answer.
    pub fn new(kind: Kind, model: &TextModel) -> Self {
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

/// Sends the text.
///
/// # Errors
///
/// Returns an error if the device fails, of a stream only before its first part.
pub async fn send(
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
        // Proxies end answers that are silent for long.
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
