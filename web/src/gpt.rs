//! A small transformer that learns to write this crate's own shaders, a character at a time.

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
use burn_wgsl::{Wgsl, WgslDevice};
use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};
use web_time::Instant;

use crate::Training;
use crate::device::parsed;
use crate::dice::Dice;
use crate::script::{Result, Steps, floats, object};
use crate::set::ints;

/// The characters that the network sees at once.
const CONTEXT: usize = 64;
/// The texts of a step.
const BATCH: usize = 16;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const LAYERS: usize = 2;

/// A transformer over characters.
#[derive(Module, Debug)]
struct Transformer<B: Backend> {
    characters: Embedding<B>,
    places: Embedding<B>,
    layers: TransformerEncoder<B>,
    scores: Linear<B>,
}

impl<B: Backend> Transformer<B> {
    fn new(vocabulary: usize, device: &B::Device) -> Self {
        let layers = TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, HEADS, LAYERS);
        Self {
            characters: EmbeddingConfig::new(vocabulary, WIDTH).init(device),
            places: EmbeddingConfig::new(CONTEXT, WIDTH).init(device),
            layers: layers.with_norm_first(true).with_dropout(0.0).init(device),
            scores: LinearConfig::new(WIDTH, vocabulary).init(device),
        }
    }

    /// Scores `[batch, length, vocabulary]` of the character after each one.
    fn forward(&self, text: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let [batch, length] = text.dims();
        let device = text.device();
        let places = Tensor::arange(0..length as i64, &device).unsqueeze::<2>();
        let x = self.characters.forward(text) + self.places.forward(places);
        let mask = generate_autoregressive_mask(batch, length, &device);
        self.scores.forward(self.layers.forward(TransformerEncoderInput::new(x).mask_attn(mask)))
    }
}

#[derive(Deserialize)]
struct Settings {
    seed: u32,
    rate: f64,
}

#[derive(Serialize)]
struct Info {
    parameters: usize,
    context: usize,
    vocabulary: usize,
    text_bytes: usize,
}

/// Where the network is while no step is under way.
const WHOLE: &str = "a step that ends puts the network back";

/// The network, the text it learns from, and the text it writes.
#[wasm_bindgen]
pub struct Gpt {
    device: WgslDevice,
    /// Missing only while a step is under way.
    model: Option<Transformer<Training>>,
    optimizer: OptimizerAdaptor<Adam, Transformer<Training>, Training>,
    rate: f64,
    step: usize,
    vocabulary: Vec<char>,
    text: Vec<i32>,
    dice: Dice,
    written: Vec<i32>,
}

#[wasm_bindgen]
impl Gpt {
    /// A network that knows nothing yet, on a device that is open.
    pub async fn create(device: &str, settings: JsValue) -> Result<Gpt> {
        let device = parsed(device)?;
        let Settings { seed, rate } = crate::script::settings(settings)?;
        let text: Vec<char> =
            burn_wgsl::kernels::sources().iter().flat_map(|source| source.text.chars()).collect();
        let mut vocabulary = text.clone();
        vocabulary.sort_unstable();
        vocabulary.dedup();
        let numbers = |c: &char| vocabulary.binary_search(c).map_or(0, |at| at as i32);
        let text = text.iter().map(numbers).collect();
        Training::seed(&device, u64::from(seed));
        Ok(Self {
            device,
            model: Some(Transformer::new(vocabulary.len(), &device)),
            optimizer: AdamConfig::new().with_epsilon(1e-8).init(),
            rate,
            step: 0,
            vocabulary,
            text,
            dice: Dice(u64::from(seed)),
            written: Vec::new(),
        })
    }

    /// What it is made of.
    pub fn info(&self) -> Result<JsValue> {
        let parameters = self.model.as_ref().map_or(0, Module::num_params);
        let vocabulary = self.vocabulary.len();
        let text_bytes = burn_wgsl::kernels::sources().iter().map(|source| source.text.len()).sum();
        object(&Info { parameters, context: CONTEXT, vocabulary, text_bytes })
    }

    /// Trains so many steps, each on pieces of the text from anywhere in it, and waits for the last one's loss.
    pub async fn run(&mut self, steps: usize) -> Result<JsValue> {
        let start = Instant::now();
        let loss_of = CrossEntropyLossConfig::new().init(&self.device);
        let mut losses = Vec::with_capacity(steps);
        for _ in 0..steps {
            let mut inputs = Vec::with_capacity(BATCH * CONTEXT);
            let mut targets = Vec::with_capacity(BATCH * CONTEXT);
            for _ in 0..BATCH {
                let from = self.dice.below((self.text.len() - CONTEXT) as u64) as usize;
                inputs.extend_from_slice(&self.text[from..from + CONTEXT]);
                targets.extend_from_slice(&self.text[from + 1..=from + CONTEXT]);
            }
            let model = self.model.take().expect(WHOLE);
            let scores = model.forward(ints(inputs, &self.device).reshape([BATCH, CONTEXT]));
            let scores = scores.reshape([BATCH * CONTEXT, self.vocabulary.len()]);
            let loss = loss_of.forward(scores, ints(targets, &self.device));
            losses.push(loss.clone().inner());
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            self.model = Some(self.optimizer.step(self.rate, model, gradients));
            self.step += 1;
        }
        Steps {
            step: self.step,
            samples: steps * BATCH * CONTEXT,
            ..Steps::new(losses, start).await?
        }
        .object()
    }

    /// Changes the learning rate from the next step on.
    pub fn set_rate(&mut self, rate: f64) -> Result<()> {
        if !(rate.is_finite() && rate > 0.0) {
            return Err(JsError::new("a learning rate is above zero"));
        }
        self.rate = rate;
        Ok(())
    }

    /// Begins a text. Returns the part of the prompt that it goes on from.
    pub fn write(&mut self, prompt: &str) -> String {
        // Letters that no shader has are left out.
        let known = prompt.chars().filter_map(|c| self.vocabulary.binary_search(&c).ok());
        self.written = known.map(|at| at as i32).collect();
        let kept = self.written.iter().map(|&at| self.vocabulary[at as usize]).collect();
        if self.written.is_empty() {
            // Texts begin with a line break then.
            self.written.extend(self.vocabulary.binary_search(&'\n').ok().map(|at| at as i32));
        }
        kept
    }

    /// The next character of the text. The lower the temperature, the fewer surprises.
    pub async fn next(&mut self, temperature: f32) -> Result<String> {
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(JsError::new("a temperature is not below zero"));
        }
        // At zero the likeliest character is taken: nothing else is left of the others.
        let temperature = temperature.max(1e-3);
        let model = self.model.as_ref().expect(WHOLE).valid();
        let seen = self.written[self.written.len().saturating_sub(CONTEXT)..].to_vec();
        let length = seen.len();
        let scores = model.forward(ints::<Wgsl>(seen, &self.device).unsqueeze::<2>());
        let last = scores.slice([0..1, length - 1..length]).reshape([1, self.vocabulary.len()]);
        let chances =
            floats(softmax(last / temperature, 1).reshape([self.vocabulary.len()])).await?;
        let mut left = self.dice.below(1 << 24) as f32 / (1 << 24) as f32;
        let mut chosen = self.vocabulary.len() - 1;
        for (at, chance) in chances.into_iter().enumerate() {
            left -= chance;
            if left < 0.0 {
                chosen = at;
                break;
            }
        }
        self.written.push(chosen as i32);
        Ok(self.vocabulary[chosen].to_string())
    }
}
