//! A small transformer language model that is trained on this crate's shaders, with characters as
//! tokens.

use burn::module::Module;
use burn_wgsl::generate::{Sampler, Sampling};
use burn_wgsl::scaler::ScalerState;
use burn_wgsl::{Precision, UnknownPrecision, Wgsl, WgslDevice, product_path, profiler};
use gpt::corpus::Corpus;
use gpt::model::Sizes;
use gpt::sample::Writer;
use gpt::train::Trainer;
use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};
use web_time::Instant;

use crate::device::parse_device;
use crate::rng::Rng;
use crate::script::{Result, TrainingReport, check_learning_rate, from_js, js_error, to_js};

/// Sequences per training step.
const BATCH_SIZE: usize = 16;

#[derive(Deserialize)]
struct Settings {
    seed: u32,
    /// Learning rate.
    rate: f64,
    /// The word of a [`Precision`].
    precision: String,
}

#[derive(Serialize)]
struct Info {
    parameters: usize,
    context_length: usize,
    vocabulary_size: usize,
    corpus_bytes: usize,
    /// How products are computed.
    products: String,
}

/// The loss scale of f16.
#[derive(Serialize)]
struct Scale {
    scale: f32,
    good_steps: u32,
    skipped_steps: u32,
}

/// The model, its training corpus and the text that it generates.
#[wasm_bindgen]
pub struct Gpt {
    device: WgslDevice,
    sizes: Sizes,
    precision: Precision,
    trainer: Trainer,
    learning_rate: f64,
    step: usize,
    corpus: Corpus,
    rng: Rng,
    /// Tokens of the current text: the prompt and the generated tokens.
    generated: Vec<i32>,
    /// Writes that text. A step of training ends it: keys and values of other weights are kept in it.
    writer: Option<Writer<Wgsl>>,
    sampler: Sampler,
}

#[wasm_bindgen]
impl Gpt {
    /// Creates an untrained model on an open device. `settings` holds `seed`, `rate` (learning rate) and
    /// `precision`.
    pub async fn create(device: &str, settings: JsValue) -> Result<Gpt> {
        let device = parse_device(device)?;
        let Settings { seed, rate, precision } = from_js(settings)?;
        let precision: Precision =
            precision.parse().map_err(|cause: UnknownPrecision| js_error(cause))?;
        let text: String = burn_wgsl::kernels::sources().iter().map(|source| source.text).collect();
        let corpus = Corpus::new(&text);
        let sizes = Sizes::default();
        let vocabulary_size = corpus.vocabulary_size();
        Ok(Self {
            device,
            sizes,
            precision,
            trainer: Trainer::new(sizes, vocabulary_size, precision, seed.into(), device),
            learning_rate: rate,
            step: 0,
            corpus,
            rng: Rng(u64::from(seed)),
            generated: Vec::new(),
            writer: None,
            sampler: Sampler::new(Sampling::GREEDY, seed.into()),
        })
    }

    /// Returns the sizes of the model and its corpus.
    pub fn info(&self) -> Result<JsValue> {
        let products = product_path(&self.device, self.precision).map_err(js_error)?;
        let corpus_bytes =
            burn_wgsl::kernels::sources().iter().map(|source| source.text.len()).sum();
        to_js(&Info {
            parameters: self.trainer.model().num_params(),
            context_length: self.sizes.context,
            vocabulary_size: self.corpus.vocabulary_size(),
            corpus_bytes,
            products: products.to_string(),
        })
    }

    /// Reads back the loss scale: `null` if there is none.
    pub async fn scale(&self) -> Result<JsValue> {
        let scaler = self.trainer.scaler();
        if !scaler.is_enabled() {
            return Ok(JsValue::NULL);
        }
        let state = scaler.state_async().await.map_err(js_error)?;
        let ScalerState { scale, good_steps, skipped_steps } = state;
        to_js(&Scale { scale, good_steps, skipped_steps })
    }

    /// Trains `steps` steps on random excerpts of the corpus and awaits their losses.
    pub async fn run(&mut self, steps: usize) -> Result<JsValue> {
        let start = Instant::now();
        let size = [BATCH_SIZE, self.sizes.context];
        let mut losses = Vec::with_capacity(steps);
        self.writer = None;
        let scope = self.trainer.precision_scope();
        for _ in 0..steps {
            let all = 0..self.corpus.len();
            let batch = self.corpus.excerpts(all, size, &mut self.rng, &self.device);
            losses.push(self.trainer.step(batch, self.learning_rate));
            self.step += 1;
        }
        // No scope lasts across an await.
        drop(scope);
        TrainingReport {
            step: self.step,
            samples: steps * size.iter().product::<usize>(),
            ..TrainingReport::new(losses, start).await?
        }
        .to_js()
    }

    /// Profiles `steps` training steps. Returns the profile as JSON, as the page `profile.html` shows
    /// it.
    pub async fn profile(&mut self, steps: usize) -> Result<String> {
        let session = profiler::start(&self.device).map_err(js_error)?;
        self.run(steps).await?;
        Ok(session.finish_async().await.map_err(js_error)?.to_json())
    }

    /// Sets the learning rate for the following steps.
    pub fn set_learning_rate(&mut self, learning_rate: f64) -> Result<()> {
        check_learning_rate(learning_rate)?;
        self.learning_rate = learning_rate;
        Ok(())
    }

    /// Starts a new text from a prompt. Returns the prompt without the characters that are not in
    /// the vocabulary.
    pub fn start_text(&mut self, prompt: &str) -> String {
        self.writer = None;
        self.generated = self.corpus.encode(prompt);
        let used_prompt = self.corpus.decode(&self.generated);
        if self.generated.is_empty() {
            // The model needs at least one token: start from a line break.
            self.generated = self.corpus.encode("\n");
        }
        used_prompt
    }

    /// Samples the next character of the text. A temperature of 0 selects the most likely one.
    pub async fn next_token(&mut self, temperature: f32) -> Result<String> {
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(JsError::new(&format!(
                "the temperature is {temperature}; it must be finite and at least 0"
            )));
        }
        self.sampler.set_sampling(Sampling { temperature, ..Sampling::GREEDY });
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => Writer::new(self.trainer.model(), self.generated.clone()),
        };
        let token = writer.next(&mut self.sampler).await.map_err(js_error)?;
        self.writer = Some(writer);
        self.generated.push(token);
        Ok(self.corpus.decode(&[token]))
    }
}
