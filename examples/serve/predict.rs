//! Answers of files: a JSON line for each input.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use burn_wgsl::generate::{KvCache, Sampler, Sampling};
use burn_wgsl::{Wgsl, WgslDevice};
use llama::model::Llama;
use llama::text::{self, TextError};
use llama::tokenizer::Tokens;
use serde_json::{Value, json};

use crate::classifier::Classifier;
use crate::device::attempt;
use crate::http::label;
use crate::models::{Sizes, open_text};
use crate::picture::{self, Picture};

/// Classifies pictures, in batches. Returns how many could not be read: their lines say why.
///
/// # Errors
///
/// Returns an error if the model cannot be loaded, the device fails, or lines cannot be written.
pub fn pictures(
    model: &Path,
    device: WgslDevice,
    sizes: Sizes,
    files: &[PathBuf],
    out: &mut impl Write,
) -> Result<usize> {
    let classifier = Classifier::open(model, device, sizes.pictures)?;
    let mut failed = 0;
    for files in files.chunks(sizes.pictures.largest()) {
        let read =
            |file: &PathBuf| -> Result<Picture> { Ok(picture::decode(&std::fs::read(file)?)?) };
        let pictures: Vec<Result<Picture>> = files.iter().map(read).collect();
        let readable: Vec<&Picture> = pictures.iter().flatten().collect();
        let answers = match readable.is_empty() {
            true => Vec::new(),
            false => classifier.classify(&readable)?,
        };
        let mut answers = answers.into_iter();
        for (file, picture) in files.iter().zip(&pictures) {
            let mut line = match picture {
                Ok(_) => label(&answers.next().context("a picture has no answer")?),
                Err(error) => {
                    failed += 1;
                    json!({ "error": format!("{error:#}") })
                }
            };
            line["file"] = json!(file.display().to_string());
            writeln!(out, "{line}")?;
        }
    }
    Ok(failed)
}

/// Continues each line of text files with the most likely tokens. Returns how many lines and files have no answer:
/// their lines say why. Blank lines are left out.
///
/// # Errors
///
/// Returns an error if the model cannot be loaded, the device fails, or lines cannot be written.
pub fn texts(
    model: &Path,
    device: WgslDevice,
    sizes: Sizes,
    limit: usize,
    files: &[PathBuf],
    out: &mut impl Write,
) -> Result<usize> {
    let (mut file, tokens, _) = open_text(model)?;
    let loaded = Llama::<Wgsl>::load(&mut file, sizes.texts.capacity, sizes.form, &device);
    let model = loaded.with_context(|| format!("cannot load {}", model.display()))?;
    let mut cache = model.cache(1, sizes.texts.capacity);
    let mut failed = 0;
    for file in files {
        let name = file.display().to_string();
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => {
                failed += 1;
                writeln!(out, "{}", json!({ "file": name, "error": error.to_string() }))?;
                continue;
            }
        };
        let prompts = text.lines().enumerate().filter(|(_, prompt)| !prompt.trim().is_empty());
        for (number, prompt) in prompts {
            cache.clear(0);
            let answer = attempt(|| continued(&model, &mut cache, &tokens, prompt, limit));
            let mut line = match answer {
                Ok(answer) => answer,
                Err(error) => match error.downcast_ref::<TextError>() {
                    Some(TextError::EmptyPrompt | TextError::Full(_) | TextError::NoToken) => {
                        failed += 1;
                        json!({ "error": format!("{error:#}") })
                    }
                    _ => return Err(error),
                },
            };
            line["file"] = json!(name);
            line["line"] = json!(number + 1);
            writeln!(out, "{line}")?;
        }
    }
    Ok(failed)
}

fn continued(
    model: &Llama<Wgsl>,
    cache: &mut KvCache<Wgsl>,
    tokens: &Tokens,
    prompt: &str,
    limit: usize,
) -> Result<Value> {
    let mut stream = tokens.stream();
    let mut answer = String::new();
    let mut sampler = Sampler::new(Sampling::GREEDY, 0);
    let times = text::write(model, cache, &tokens.prompt(prompt)?, limit, &mut sampler, |token| {
        let goes_on = !tokens.is_end(token);
        if goes_on {
            answer += &stream.push(token);
        }
        goes_on
    })?;
    answer += &stream.finish();
    Ok(json!({ "prompt": prompt, "text": answer, "prompt_tokens": times.prompt.0 }))
}
