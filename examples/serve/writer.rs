//! The model that writes text: sequences join and leave a running batch between tokens.

use anyhow::Result;
use burn_wgsl::generate::{KvCache, Sampler, Sampling};
use burn_wgsl::serve::Joined;
use burn_wgsl::{Wgsl, WgslDevice};
use llama::gguf::Gguf;
use llama::linear::Form;
use llama::model::Llama;
use llama::text::{self, TextError};
use llama::tokenizer::Tokens;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::device::Reopened;
use crate::failure::Failure;
use crate::metrics::{Ended, Metrics};

/// A text that is to be continued.
#[derive(Debug)]
pub struct Write {
    /// At least one token, and fewer than a sequence may have.
    pub prompt: Vec<u32>,
    /// The most tokens that are written.
    pub limit: usize,
    pub sampling: Sampling,
    pub seed: u64,
    /// Has room for all tokens and the end. If the other end is dropped, the text ends.
    pub events: Sender<Event>,
}

/// What happens to a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Token(u32),
    End(End),
    Failed(Failure),
}

/// Why a text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The model ended it.
    Stop,
    /// It has as many tokens as were asked for, or as there is room for.
    Length,
}

/// The sizes of a [`Writer`].
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Texts that are written together.
    pub sequences: usize,
    /// The most tokens of a text, with its prompt.
    pub capacity: usize,
}

/// The model on a device, and the keys and values of all texts.
pub struct Writer {
    model: Llama<Wgsl>,
    cache: KvCache<Wgsl>,
    /// A text that is about to join the others.
    alone: KvCache<Wgsl>,
}

impl Writer {
    /// Loads a model, reads prompts and writes tokens, which compiles the kernels.
    ///
    /// # Errors
    ///
    /// Returns an error if the model cannot be loaded, or the device fails.
    pub fn open(file: &mut Gguf, sizes: Sizes, form: Form, device: &WgslDevice) -> Result<Self> {
        let model = Llama::load(file, sizes.capacity, form, device)?;
        let mut cache = model.cache(sizes.sequences, sizes.capacity);
        // The longest part of a prompt, which needs the most memory, and a short one.
        let mut alone = model.cache(1, sizes.capacity);
        for len in [text::CHUNK.min(cache.config().capacity - 1), 1] {
            alone.clear(0);
            model.read(&vec![0; len], &mut alone)?;
        }
        cache.join(0, &alone);
        let chosen = Sampling { temperature: 1.0, ..Sampling::GREEDY };
        for sampling in [Sampling::GREEDY, chosen] {
            cache.clear(0);
            cache.join(0, &alone);
            let logits = model.read(&vec![0; sizes.sequences], &mut cache)?;
            let mut sampler = Sampler::new(sampling, 0);
            pollster::block_on(text::choose(logits, [Some(&mut sampler)]))?;
        }
        cache.clear(0);
        Ok(Self { model, cache, alone })
    }

    /// Reads the tokens of a text but the last, and puts it into a place.
    fn join(&mut self, place: usize, tokens: &[u32]) -> Result<()> {
        let (_, others) = tokens.split_last().expect("a text has a token");
        self.alone.clear(0);
        text::read_all(&self.model, &mut self.alone, others)?;
        self.cache.join(place, &self.alone);
        Ok(())
    }
}

/// A text that is being written.
struct Running {
    events: Sender<Event>,
    sampler: Sampler,
    /// Those of the prompt, and those that were written.
    tokens: Vec<u32>,
    /// The most tokens, with the prompt.
    limit: usize,
}

impl Running {
    fn new(request: Write, capacity: usize) -> Self {
        let Write { prompt, limit, sampling, seed, events } = request;
        let limit = prompt.len().saturating_add(limit).min(capacity);
        Self { events, sampler: Sampler::new(sampling, seed), tokens: prompt, limit }
    }

    /// Takes the next token. Returns how the text ended, if it did.
    fn push(&mut self, token: Result<u32, TextError>, is_end: bool) -> Option<Ended> {
        let token = match token {
            Err(error) => return Some(self.end(Event::Failed(Failure::Model(error.to_string())))),
            Ok(_) if is_end => return Some(self.end(Event::End(End::Stop))),
            Ok(token) => token,
        };
        match self.events.try_send(Event::Token(token)) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => return Some(Ended::Left),
            Err(TrySendError::Full(_)) => {
                log::error!("a text has more tokens than its reader has room for");
                return Some(Ended::Failed);
            }
        }
        self.tokens.push(token);
        let is_full = self.tokens.len() >= self.limit;
        is_full.then(|| self.end(Event::End(End::Length)))
    }

    /// Sends the last event. Returns how the text ended.
    fn end(&self, event: Event) -> Ended {
        let ended = match event {
            Event::End(End::Stop) => Ended::Stop,
            Event::End(End::Length) => Ended::Length,
            Event::Token(_) | Event::Failed(_) => Ended::Failed,
        };
        match self.events.try_send(event) {
            Err(TrySendError::Closed(_)) => Ended::Left,
            _ => ended,
        }
    }
}

/// Writes texts until no more are accepted and all are written.
///
/// # Errors
///
/// Returns an error if the device fails several times in a row.
pub fn run<F: FnMut() -> Result<Writer>>(
    mut model: Reopened<Writer, F>,
    sizes: Sizes,
    tokens: &Tokens,
    joined: &Joined<Write>,
    metrics: &Metrics,
) -> Result<()> {
    let mut places: Vec<Option<Running>> = (0..sizes.sequences).map(|_| None).collect();
    loop {
        let is_idle = places.iter().all(Option::is_none);
        if is_idle && !joined.wait() {
            return Ok(());
        }
        let mut new = Vec::new();
        for (place, running) in places.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
            let mut waiting = std::iter::from_fn(|| joined.take());
            let open = waiting.find(|write| {
                let is_open = !write.events.is_closed();
                metrics.ended.add(Ended::Left, u64::from(!is_open));
                is_open
            });
            let Some(request) = open else { break };
            metrics.prompt_tokens.inc_by(request.prompt.len() as u64);
            *running = Some(Running::new(request, sizes.capacity));
            new.push(place);
        }
        // All that waited may have gone.
        if places.iter().all(Option::is_none) {
            continue;
        }
        let result = step(&mut model, &mut places, &new, tokens, metrics);
        metrics.texts.set(places.iter().flatten().count() as i64);
        if let Err(error) = result {
            for running in places.into_iter().flatten() {
                let failure = Failure::Device(error.to_string());
                metrics.ended.add(running.end(Event::Failed(failure)), 1);
            }
            return Err(error);
        }
    }
}

/// Writes a token of each text, after those in `new` places were read.
fn step<F: FnMut() -> Result<Writer>>(
    model: &mut Reopened<Writer, F>,
    places: &mut [Option<Running>],
    new: &[usize],
    tokens: &Tokens,
    metrics: &Metrics,
) -> Result<()> {
    let chosen = model.run(metrics, |writer, is_new| {
        for (place, running) in places.iter().enumerate() {
            // A device that was opened again has read nothing.
            let Some(running) = running else { continue };
            if is_new || new.contains(&place) {
                writer.join(place, &running.tokens)?;
            }
        }
        let last = |running: &Option<Running>| {
            running.as_ref().and_then(|running| running.tokens.last().copied()).unwrap_or(0)
        };
        let last: Vec<u32> = places.iter().map(last).collect();
        let logits = writer.model.read(&last, &mut writer.cache)?;
        let samplers = places.iter_mut().map(|running| running.as_mut().map(|r| &mut r.sampler));
        Ok(pollster::block_on(text::choose(logits, samplers))?)
    })?;
    let mut left = Vec::new();
    for ((place, running), token) in places.iter_mut().enumerate().zip(chosen) {
        let Some(text) = running else { continue };
        let token = token.expect("a text has a sampler");
        let is_end = token.as_ref().is_ok_and(|token| tokens.is_end(*token));
        metrics.written_tokens.inc_by(u64::from(token.is_ok() && !is_end));
        if let Some(ended) = text.push(token, is_end) {
            metrics.ended.add(ended, 1);
            *running = None;
            left.push(place);
        }
    }
    if let Some(writer) = model.model() {
        left.iter().for_each(|&place| writer.cache.clear(place));
    }
    Ok(())
}
