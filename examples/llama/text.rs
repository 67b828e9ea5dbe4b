//! Text that a model writes after a prompt.

use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, FloatDType, Tensor};
use burn_wgsl::generate::{CacheFull, KvCache, Sampler};
use thiserror::Error;

use crate::model::Llama;

/// Why no text can be written.
#[derive(Debug, Error)]
pub enum TextError {
    /// There are no tokens to continue.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    /// The prompt is too long.
    #[error(transparent)]
    Full(#[from] CacheFull),
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(String),
    /// The model has no next token: logits are NaN.
    #[error("the model computes NaN: its weights may be damaged")]
    NoToken,
}

/// How long it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// Tokens of the prompt, and the time to read them.
    pub prompt: (usize, Duration),
    /// Tokens that were written after the first, and the time for them.
    pub written: (usize, Duration),
}

/// Tokens at most that a model reads at once, so that the memory for them is bounded.
const CHUNK: usize = 512;

/// Writes at most `limit` tokens after a prompt, and calls `accept` with each. It ends if that returns `false`, or the
/// cache is full.
///
/// # Errors
///
/// Returns an error if the prompt is empty or longer than the cache, the device fails, or the model computes NaN.
///
/// # Panics
///
/// Panics if the cache has several sequences.
pub fn write<B: Backend>(
    model: &Llama<B>,
    cache: &mut KvCache<B>,
    prompt: &[u32],
    limit: usize,
    sampler: &mut Sampler,
    mut accept: impl FnMut(u32) -> bool,
) -> Result<Times, TextError> {
    let start = Instant::now();
    cache.check_room(prompt.len())?;
    let mut logits = None;
    for chunk in prompt.chunks(CHUNK) {
        logits = Some(model.read(chunk, cache)?);
    }
    let mut token = choose(logits.ok_or(TextError::EmptyPrompt)?, sampler)?;
    let prompt = (prompt.len(), start.elapsed());
    let start = Instant::now();
    let mut written = 0;
    for count in 1..=limit {
        if !accept(token) || count == limit || cache.check_room(1).is_err() {
            break;
        }
        token = choose(model.read(&[token], cache)?, sampler)?;
        written += 1;
    }
    Ok(Times { prompt, written: (written, start.elapsed()) })
}

/// Returns the next token of the only sequence.
fn choose<B: Backend>(logits: Tensor<B, 2>, sampler: &mut Sampler) -> Result<u32, TextError> {
    let failed = |error: &dyn std::fmt::Display| TextError::Device(error.to_string());
    if sampler.sampling().is_greedy() {
        // The largest logit and its index are read, and not the logits of all. Indices below 2^24 are exact in f32.
        let (largest, index) = logits.cast(FloatDType::F32).max_dim_with_indices(1);
        let found = Tensor::cat(vec![largest, index.float().cast(FloatDType::F32)], 1);
        let found = found.try_into_data().map_err(|error| failed(&error))?;
        let found: Vec<f32> = found.iter::<f32>().collect();
        return if found[0].is_nan() { Err(TextError::NoToken) } else { Ok(found[1] as u32) };
    }
    let data = logits.cast(FloatDType::F32).try_into_data().map_err(|error| failed(&error))?;
    let logits: Vec<f32> = data.iter::<f32>().map(ElementConversion::elem).collect();
    sampler.choose(&logits).map(|index| index as u32).ok_or(TextError::NoToken)
}
