//! Requests for text, as OpenAI's API has them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use burn_wgsl::generate::Sampling;
use llama::chat::Message;
use serde::Deserialize;
use serde_json::Value;

use super::App;
use super::answer::{Form, next_number};
use super::text::{TextModel, TextOptions};
use crate::failure::Failure;

/// One string, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text, or a list of texts")]
pub enum Strings {
    One(String),
    Several(Vec<String>),
}

impl Strings {
    /// Returns all of them.
    pub fn into_list(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Several(texts) => texts,
        }
    }
}

/// What both requests have. Fields that are not listed have no effect.
#[derive(Debug, Deserialize)]
pub struct Options {
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
    pub prompt: Strings,
    #[serde(flatten)]
    pub options: Options,
}

/// A request for an answer.
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    pub messages: Vec<ChatMessage>,
    #[serde(flatten)]
    pub options: Options,
}

/// A message of a chat.
#[derive(Debug, Deserialize)]
pub struct ChatMessage {
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
    /// Returns the message as the model reads it.
    pub fn into_message(self) -> Message {
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

/// The most texts that end another.
const MAX_STOPS: usize = 4;

impl Options {
    /// Returns how a text is to be written.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is wrong, or is not supported.
    pub fn text(
        self,
        prompt: Vec<u32>,
        default_limit: Option<usize>,
    ) -> Result<TextOptions, Failure> {
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
    pub fn form(&self) -> Form {
        let include_usage = self.stream_options.as_ref().and_then(|options| options.include_usage);
        match (self.stream.unwrap_or(false), include_usage.unwrap_or(false)) {
            (false, _) => Form::Whole,
            (true, include_usage) => Form::Stream { include_usage },
        }
    }

    /// Returns the model that is asked for.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no model of this name.
    pub fn model(&self, app: &App) -> Result<Arc<TextModel>, Failure> {
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
