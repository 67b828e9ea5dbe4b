//! A small transformer language model that is trained on this crate's shaders, with characters as
//! tokens.

use burn::module::{AutodiffModule, Module};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn_wgsl::{WgslDevice, profiler, scope};
use gpt::corpus::Corpus;
use gpt::model::{Gpt as Model, Sizes, adam};
use gpt::sample::next_token;
use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};
use web_time::Instant;

use crate::Training;
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
}

#[derive(Serialize)]
struct Info {
    parameters: usize,
    context_length: usize,
    vocabulary_size: usize,
    corpus_bytes: usize,
}

const MODEL_EXISTS: &str = "the model is absent only during a step";

/// The model, its training corpus and the text that it generates.
#[wasm_bindgen]
pub struct Gpt {
    device: WgslDevice,
    sizes: Sizes,
    /// `None` only during a step.
    model: Option<Model<Training>>,
    optimizer: OptimizerAdaptor<Adam, Model<Training>, Training>,
    learning_rate: f64,
    step: usize,
    corpus: Corpus,
    rng: Rng,
    /// Tokens of the current text: the prompt and the generated tokens.
    generated: Vec<i32>,
}

#[wasm_bindgen]
impl Gpt {
    /// Creates an untrained model on an open device. `settings` holds `seed` and `rate` (learning
    /// rate).
    pub async fn create(device: &str, settings: JsValue) -> Result<Gpt> {
        let device = parse_device(device)?;
        let Settings { seed, rate } = from_js(settings)?;
        let text: String = burn_wgsl::kernels::sources().iter().map(|source| source.text).collect();
        let corpus = Corpus::new(&text);
        let sizes = Sizes::default();
        Training::seed(&device, u64::from(seed));
        let model = Model::new(sizes, corpus.vocabulary_size(), &device);
        Ok(Self {
            device,
            sizes,
            model: Some(model),
            optimizer: adam(),
            learning_rate: rate,
            step: 0,
            corpus,
            rng: Rng(u64::from(seed)),
            generated: Vec::new(),
        })
    }

    /// Returns the sizes of the model and its corpus.
    pub fn info(&self) -> Result<JsValue> {
        let parameters = self.model.as_ref().map_or(0, Module::num_params);
        let corpus_bytes =
            burn_wgsl::kernels::sources().iter().map(|source| source.text.len()).sum();
        to_js(&Info {
            parameters,
            context_length: self.sizes.context,
            vocabulary_size: self.corpus.vocabulary_size(),
            corpus_bytes,
        })
    }

    /// Trains `steps` steps on random excerpts of the corpus and awaits their losses.
    pub async fn run(&mut self, steps: usize) -> Result<JsValue> {
        let start = Instant::now();
        let size = [BATCH_SIZE, self.sizes.context];
        let mut losses = Vec::with_capacity(steps);
        for _ in 0..steps {
            let all = 0..self.corpus.len();
            let batch = self.corpus.excerpts(all, size, &mut self.rng, &self.device);
            let model = self.model.take().expect(MODEL_EXISTS);
            let forward = scope("forward");
            let loss = model.loss(batch);
            losses.push(loss.clone().inner());
            drop(forward);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            let _optimizer = scope("optimizer");
            self.model = Some(self.optimizer.step(self.learning_rate, model, gradients));
            self.step += 1;
        }
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
        let model = self.model.as_ref().expect(MODEL_EXISTS).valid();
        let start = self.generated.len().saturating_sub(self.sizes.context);
        let context = &self.generated[start..];
        let token = next_token(&model, context, temperature, &mut self.rng, &self.device);
        let token = token.await.map_err(js_error)?;
        self.generated.push(token);
        Ok(self.corpus.decode(&[token]))
    }
}
