//! A small transformer language model that is trained on this crate's shaders, with characters as
//! tokens.

use burn::module::{AutodiffModule, Module};
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use burn_wgsl::{Wgsl, WgslDevice, profiler, scope};
use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};
use web_time::Instant;

use crate::Training;
use crate::device::parse_device;
use crate::rng::Rng;
use crate::script::{
    Result, TrainingReport, check_learning_rate, from_js, js_error, read_floats, to_js,
};
use crate::tensors::int_tensor;

/// Context length in tokens.
const CONTEXT: usize = 64;
/// Sequences per training step.
const BATCH_SIZE: usize = 16;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const LAYERS: usize = 2;

/// A transformer over characters.
#[derive(Module, Debug)]
struct Transformer<B: Backend> {
    token_embedding: Embedding<B>,
    position_embedding: Embedding<B>,
    encoder: TransformerEncoder<B>,
    output: Linear<B>,
}

impl<B: Backend> Transformer<B> {
    fn new(vocabulary_size: usize, device: &B::Device) -> Self {
        let encoder = TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, HEADS, LAYERS);
        Self {
            token_embedding: EmbeddingConfig::new(vocabulary_size, WIDTH).init(device),
            position_embedding: EmbeddingConfig::new(CONTEXT, WIDTH).init(device),
            encoder: encoder.with_norm_first(true).with_dropout(0.0).init(device),
            output: LinearConfig::new(WIDTH, vocabulary_size).init(device),
        }
    }

    /// Returns logits `[batch, length, vocabulary]` of the next token at each position of `tokens`
    /// `[batch, length]`.
    fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let [batch, length] = tokens.dims();
        let device = tokens.device();
        let positions = Tensor::arange(0..length as i64, &device).unsqueeze::<2>();
        let x = self.token_embedding.forward(tokens) + self.position_embedding.forward(positions);
        let mask = generate_autoregressive_mask(batch, length, &device);
        self.output.forward(self.encoder.forward(TransformerEncoderInput::new(x).mask_attn(mask)))
    }
}

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
    /// `None` only during a step.
    model: Option<Transformer<Training>>,
    optimizer: OptimizerAdaptor<Adam, Transformer<Training>, Training>,
    learning_rate: f64,
    step: usize,
    /// The characters of the corpus in ascending order. A token is an index into this list.
    vocabulary: Vec<char>,
    corpus: Vec<i32>,
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
        let characters: Vec<char> =
            burn_wgsl::kernels::sources().iter().flat_map(|source| source.text.chars()).collect();
        let mut vocabulary = characters.clone();
        vocabulary.sort_unstable();
        vocabulary.dedup();
        let token_of = |c: &char| vocabulary.binary_search(c).map_or(0, |index| index as i32);
        let corpus = characters.iter().map(token_of).collect();
        Training::seed(&device, u64::from(seed));
        Ok(Self {
            device,
            model: Some(Transformer::new(vocabulary.len(), &device)),
            optimizer: AdamConfig::new().with_epsilon(1e-8).init(),
            learning_rate: rate,
            step: 0,
            vocabulary,
            corpus,
            rng: Rng(u64::from(seed)),
            generated: Vec::new(),
        })
    }

    /// Returns the sizes of the model and its corpus.
    pub fn info(&self) -> Result<JsValue> {
        let parameters = self.model.as_ref().map_or(0, Module::num_params);
        let vocabulary_size = self.vocabulary.len();
        let corpus_bytes =
            burn_wgsl::kernels::sources().iter().map(|source| source.text.len()).sum();
        to_js(&Info { parameters, context_length: CONTEXT, vocabulary_size, corpus_bytes })
    }

    /// Trains `steps` steps on random excerpts of the corpus and awaits their losses.
    pub async fn run(&mut self, steps: usize) -> Result<JsValue> {
        let start = Instant::now();
        let cross_entropy = CrossEntropyLossConfig::new().init(&self.device);
        let mut losses = Vec::with_capacity(steps);
        for _ in 0..steps {
            let mut inputs = Vec::with_capacity(BATCH_SIZE * CONTEXT);
            let mut targets = Vec::with_capacity(BATCH_SIZE * CONTEXT);
            for _ in 0..BATCH_SIZE {
                let offset = self.rng.below((self.corpus.len() - CONTEXT) as u64) as usize;
                inputs.extend_from_slice(&self.corpus[offset..offset + CONTEXT]);
                targets.extend_from_slice(&self.corpus[offset + 1..=offset + CONTEXT]);
            }
            let model = self.model.take().expect(MODEL_EXISTS);
            let forward = scope("forward");
            let logits =
                model.forward(int_tensor(inputs, &self.device).reshape([BATCH_SIZE, CONTEXT]));
            let logits = logits.reshape([BATCH_SIZE * CONTEXT, self.vocabulary.len()]);
            let loss = cross_entropy.forward(logits, int_tensor(targets, &self.device));
            losses.push(loss.clone().inner());
            drop(forward);
            let backward = scope("backward");
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            drop(backward);
            let _optimizer = scope("optimizer");
            self.model = Some(self.optimizer.step(self.learning_rate, model, gradients));
            self.step += 1;
        }
        TrainingReport {
            step: self.step,
            samples: steps * BATCH_SIZE * CONTEXT,
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
        let known = prompt.chars().filter_map(|c| self.vocabulary.binary_search(&c).ok());
        self.generated = known.map(|index| index as i32).collect();
        let used_prompt =
            self.generated.iter().map(|&token| self.vocabulary[token as usize]).collect();
        if self.generated.is_empty() {
            // The model needs at least one token: start from a line break.
            let line_break = self.vocabulary.binary_search(&'\n').ok();
            self.generated.extend(line_break.map(|index| index as i32));
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
        // At this minimum, the probabilities of all but the most likely character vanish.
        let temperature = temperature.max(1e-3);
        let model = self.model.as_ref().expect(MODEL_EXISTS).valid();
        let context = self.generated[self.generated.len().saturating_sub(CONTEXT)..].to_vec();
        let length = context.len();
        let logits = model.forward(int_tensor::<Wgsl>(context, &self.device).unsqueeze::<2>());
        let last = logits.slice([0..1, length - 1..length]).reshape([1, self.vocabulary.len()]);
        let probabilities =
            read_floats(softmax(last / temperature, 1).reshape([self.vocabulary.len()])).await?;
        // Inverse transform sampling: the token at which the cumulative probability exceeds a
        // uniform number.
        let mut remaining = self.rng.below(1 << 24) as f32 / (1 << 24) as f32;
        let mut token = self.vocabulary.len() - 1;
        for (index, probability) in probabilities.into_iter().enumerate() {
            remaining -= probability;
            if remaining < 0.0 {
                token = index;
                break;
            }
        }
        self.generated.push(token as i32);
        Ok(self.vocabulary[token].to_string())
    }
}
