//! Texts that the thread of the model writes, as they arrive.

use std::sync::Arc;

use burn_wgsl::generate::Sampling;
use burn_wgsl::serve::Requests;
use llama::tokenizer::{TextStream, Tokens};
use tokio::sync::mpsc::{Receiver, channel};

use super::submit;
use crate::failure::Failure;
use crate::writer::{End, Event, Write};

/// The model of text.
pub struct TextModel {
    /// Its name in requests.
    pub name: String,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
    pub requests: Requests<Write>,
    pub tokens: Arc<Tokens>,
    /// The most tokens of a text, with its prompt.
    pub capacity: usize,
}

/// How a text is to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct TextOptions {
    pub prompt: Vec<u32>,
    /// The most tokens; as many as there is room for, if it is not given.
    pub limit: Option<usize>,
    pub sampling: Sampling,
    pub seed: u64,
    /// Texts that end it, and are not part of it.
    pub stops: Vec<String>,
}

impl TextModel {
    /// Begins a text.
    ///
    /// # Errors
    ///
    /// Returns an error if the prompt is empty or too long, or too many requests wait.
    pub fn begin(&self, options: TextOptions) -> Result<Text, Failure> {
        let prompt = options.prompt.len();
        if prompt == 0 {
            return Err(Failure::Request("the prompt has no tokens".to_owned()));
        }
        let room = self.capacity.saturating_sub(prompt);
        if room == 0 {
            return Err(Failure::Request(format!(
                "the prompt has {prompt} tokens, and with the answer there may be {}",
                self.capacity
            )));
        }
        let limit = options.limit.map_or(room, |limit| limit.min(room));
        if limit == 0 {
            return Err(Failure::Request("no tokens are asked for: max_tokens is 0".to_owned()));
        }
        // All tokens and the end: the thread of the model waits for no reader.
        let (sender, events) = channel(limit + 1);
        let TextOptions { prompt: tokens, sampling, seed, stops, .. } = options;
        submit(&self.requests, Write { prompt: tokens, limit, sampling, seed, events: sender })?;
        let pending = Stops { stops, pending: String::new() };
        let decoder = Some(self.tokens.stream());
        Ok(Text { events, decoder, pending, written: 0, prompt })
    }
}

/// A text that is being written.
pub struct Text {
    events: Receiver<Event>,
    decoder: Option<TextStream>,
    pending: Stops,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens that were written.
    pub written: usize,
}

/// What comes next of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Text(String),
    /// The rest, and why it ends.
    End(String, End),
}

impl Text {
    /// Waits for what comes next; `None` after the end.
    ///
    /// # Errors
    ///
    /// Returns an error if the device fails.
    pub async fn next(&mut self) -> Result<Option<Part>, Failure> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Ok(None) };
            let event = self.events.recv().await;
            let event = event.unwrap_or_else(|| {
                Event::Failed(Failure::Unavailable("the model of text has ended".to_owned()))
            });
            match event {
                Event::Token(token) => {
                    self.written += 1;
                    let (text, is_end) = self.pending.push(&decoder.push(token));
                    if is_end {
                        // The thread of the model sees that nobody reads, and ends the text.
                        self.decoder = None;
                        self.events.close();
                        return Ok(Some(Part::End(text, End::Stop)));
                    }
                    if !text.is_empty() {
                        return Ok(Some(Part::Text(text)));
                    }
                }
                Event::End(end) => {
                    let rest = self.decoder.take().map_or(String::new(), TextStream::finish);
                    let (mut text, is_end) = self.pending.push(&rest);
                    if !is_end {
                        text += &self.pending.rest();
                    }
                    return Ok(Some(Part::End(text, if is_end { End::Stop } else { end })));
                }
                Event::Failed(failure) => {
                    self.decoder = None;
                    return Err(failure);
                }
            }
        }
    }
}

/// Looks for texts that end another, also where they arrive in pieces.
struct Stops {
    stops: Vec<String>,
    /// What may be the beginning of one of them.
    pending: String,
}

impl Stops {
    /// Adds text. Returns what is certain to be part of the whole, and whether it ends there.
    fn push(&mut self, text: &str) -> (String, bool) {
        self.pending += text;
        let first = self.stops.iter().filter_map(|stop| self.pending.find(stop)).min();
        if let Some(first) = first {
            self.pending.truncate(first);
            return (self.rest(), true);
        }
        let is_beginning = |start: &usize| {
            let end = &self.pending[*start..];
            self.stops.iter().any(|stop| stop.starts_with(end))
        };
        let mut starts = self.pending.char_indices().map(|(start, _)| start);
        let kept = starts.find(is_beginning).unwrap_or(self.pending.len());
        let certain = self.pending[..kept].to_owned();
        self.pending.drain(..kept);
        (certain, false)
    }

    /// Returns what is left.
    fn rest(&mut self) -> String {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_found_in_pieces() {
        let mut stops =
            Stops { stops: vec!["ENDE".to_owned(), "\n\n".to_owned()], pending: String::new() };
        assert_eq!(stops.push("one E"), ("one ".to_owned(), false));
        assert_eq!(stops.push("N"), (String::new(), false));
        assert_eq!(stops.push("X EN"), ("ENX ".to_owned(), false));
        assert_eq!(stops.push("DE and"), (String::new(), true));
        let mut stops = Stops { stops: vec!["\n\n".to_owned()], pending: String::new() };
        assert_eq!(stops.push("ä\n"), ("ä".to_owned(), false));
        assert_eq!(stops.rest(), "\n");
        let mut none = Stops { stops: Vec::new(), pending: String::new() };
        assert_eq!(none.push("text"), ("text".to_owned(), false));
    }
}
