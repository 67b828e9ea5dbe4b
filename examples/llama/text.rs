//! Text that a model writes after a prompt.

use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};
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
pub const CHUNK: usize = 512;

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
    let logits = read_all(model, cache, prompt)?.ok_or(TextError::EmptyPrompt)?;
    let mut token = choose_one(logits, sampler)?;
    let prompt = (prompt.len(), start.elapsed());
    let start = Instant::now();
    let mut written = 0;
    for count in 1..=limit {
        if !accept(token) || count == limit || cache.check_room(1).is_err() {
            break;
        }
        token = choose_one(model.read(&[token], cache)?, sampler)?;
        written += 1;
    }
    Ok(Times { prompt, written: (written, start.elapsed()) })
}

/// Reads any number of tokens of the only sequence of a cache. Returns the logits after the last; `None` if there are
/// no tokens.
///
/// # Errors
///
/// Returns an error if the cache has no room.
pub fn read_all<B: Backend>(
    model: &Llama<B>,
    cache: &mut KvCache<B>,
    tokens: &[u32],
) -> Result<Option<Tensor<B, 2>>, CacheFull> {
    cache.check_room(tokens.len())?;
    let mut logits = None;
    for chunk in tokens.chunks(CHUNK) {
        logits = Some(model.read(chunk, cache)?);
    }
    Ok(logits)
}

fn choose_one<B: Backend>(logits: Tensor<B, 2>, sampler: &mut Sampler) -> Result<u32, TextError> {
    let chosen = pollster::block_on(choose(logits, [Some(sampler)]))?;
    chosen.into_iter().flatten().next().unwrap_or(Err(TextError::NoToken))
}

/// Returns the next token of each sequence, given the logits `[sequences, vocabulary]`; `None` where there is no
/// sampler.
///
/// # Errors
///
/// Returns an error if the device fails. A sequence whose logits are NaN has an error of its own.
pub async fn choose<'a, B: Backend>(
    logits: Tensor<B, 2>,
    samplers: impl IntoIterator<Item = Option<&'a mut Sampler>>,
) -> Result<Vec<Option<Result<u32, TextError>>>, TextError> {
    let failed = |error: &dyn std::fmt::Display| TextError::Device(error.to_string());
    let mut samplers: Vec<Option<&mut Sampler>> = samplers.into_iter().collect();
    let logits = logits.cast(FloatDType::F32);
    if samplers.iter().flatten().all(|sampler| sampler.sampling().is_greedy()) {
        // The largest logits and their indices are read, and not the logits of all. Indices below 2^24 are exact in
        // f32.
        let (largest, index) = logits.max_dim_with_indices(1);
        let found = Tensor::cat(vec![largest, index.float().cast(FloatDType::F32)], 1);
        let found = found.into_data_async().await.map_err(|error| failed(&error))?;
        let found: Vec<f32> = found.iter::<f32>().collect();
        let token = |found: &[f32]| match found[0].is_nan() {
            true => Err(TextError::NoToken),
            false => Ok(found[1] as u32),
        };
        let chosen = found.chunks(2).zip(&samplers);
        return Ok(chosen.map(|(found, of)| of.as_ref().map(|_| token(found))).collect());
    }
    let vocabulary = logits.dims()[1];
    let data = logits.into_data_async().await.map_err(|error| failed(&error))?;
    let logits: Vec<f32> = data.iter::<f32>().collect();
    let token = |sampler: &mut Sampler, logits: &[f32]| {
        sampler.choose(logits).map(|index| index as u32).ok_or(TextError::NoToken)
    };
    let rows = logits.chunks(vocabulary).zip(&mut samplers);
    Ok(rows.map(|(row, of)| of.as_mut().map(|sampler| token(sampler, row))).collect())
}
