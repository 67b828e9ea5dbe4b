//! Text of a model of the Llama family, whose weights are uploaded as they arrive.

use burn_wgsl::generate::{KvCache, Sampler, Sampling};
use burn_wgsl::{Wgsl, WgslDevice, memory};
use llama::chat::{self, Message};
use llama::linear::Form;
use llama::model::Llama;
use llama::stream::Stream;
use llama::text;
use llama::tokenizer::{TextStream, Tokens};
use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};

use crate::device::parse_device;
use crate::script::{Result, from_js, js_error, to_js};

#[derive(Deserialize)]
struct Settings {
    /// Bytes of the file.
    bytes: f64,
    /// The most tokens of a text, with its prompt.
    context: usize,
}

#[derive(Deserialize)]
struct TextOptions {
    prompt: String,
    /// Whether the prompt is a question, which is answered.
    is_question: bool,
    temperature: f32,
    seed: u32,
}

#[derive(Serialize)]
struct Part {
    text: String,
    /// Why the text ends here: `end` (the model ended it) or `full` (there is no room).
    end: Option<&'static str>,
}

#[derive(Serialize)]
struct Loaded {
    /// The most tokens of a text, with its prompt.
    context: usize,
    /// Bytes of memory on the device; `null` on the CPU.
    memory: Option<u64>,
}

/// A model that is loaded, and then writes.
#[wasm_bindgen]
pub struct Text {
    device: WgslDevice,
    context: usize,
    stream: Option<Stream<Wgsl>>,
    model: Option<Model>,
}

struct Model {
    llama: Llama<Wgsl>,
    tokens: Tokens,
    cache: KvCache<Wgsl>,
    sampler: Sampler,
    /// Tokens that are to be read before the next one.
    unread: Vec<u32>,
    text: TextStream,
}

#[wasm_bindgen]
impl Text {
    /// Begins to load a model on an open device. `settings` holds `bytes`, the length of the file, and `context`.
    pub async fn create(device: &str, settings: JsValue) -> Result<Text> {
        let device = parse_device(device)?;
        let Settings { bytes, context } = from_js(settings)?;
        let form = Form::for_device(device.resolve().map_err(js_error)?, 1);
        let stream = Stream::new(bytes as u64, context, form, &device);
        Ok(Self { device, context, stream: Some(stream), model: None })
    }

    /// Adds bytes of the file, and uploads the weights that are whole.
    pub async fn push(&mut self, bytes: Vec<u8>) -> Result<()> {
        let stream = self.stream.as_mut().ok_or_else(|| JsError::new("the model is loaded"))?;
        stream.push(&bytes).map_err(js_error)
    }

    /// Ends loading.
    pub async fn finish(&mut self) -> Result<JsValue> {
        let stream = self.stream.take().ok_or_else(|| JsError::new("the model is loaded"))?;
        let (llama, tokens) = stream.finish().map_err(js_error)?;
        let cache = llama.cache(1, self.context);
        let (text, context) = (tokens.stream(), cache.config().capacity);
        let sampler = Sampler::new(Sampling::GREEDY, 0);
        self.model = Some(Model { llama, tokens, cache, sampler, unread: Vec::new(), text });
        let usage = memory::usage(&self.device).map_err(js_error)?;
        let memory = (usage.in_use > 0).then_some(usage.in_use);
        to_js(&Loaded { context, memory })
    }

    /// Begins a text. `options` holds `prompt`, `is_question`, `temperature` and `seed`. Returns how many tokens the
    /// prompt has.
    pub async fn start_text(&mut self, options: JsValue) -> Result<usize> {
        let TextOptions { prompt, is_question, temperature, seed } = from_js(options)?;
        let model = self.model()?;
        let ids = match is_question {
            true => {
                let message = Message { role: "user".to_owned(), content: prompt };
                chat::prompt(&[message], &model.tokens).map_err(js_error)?
            }
            false => model.tokens.prompt(&prompt).map_err(js_error)?,
        };
        let capacity = model.cache.config().capacity;
        if ids.is_empty() || ids.len() >= capacity {
            let problem = format!("the prompt has {} tokens, of 1 to {}", ids.len(), capacity - 1);
            return Err(JsError::new(&problem));
        }
        let sampling = Sampling { temperature, top_k: 40, top_p: 0.95 };
        model.sampler = Sampler::new(sampling, seed.into());
        model.cache.clear(0);
        model.text = model.tokens.stream();
        model.unread = ids;
        Ok(model.unread.len())
    }

    /// Writes a token. Returns its text, which may be whole only with the next.
    pub async fn next_token(&mut self) -> Result<JsValue> {
        let model = self.model()?;
        if model.unread.is_empty() {
            return Err(JsError::new("no text was started"));
        }
        if model.cache.check_room(model.unread.len()).is_err() {
            let rest = std::mem::replace(&mut model.text, model.tokens.stream()).finish();
            return to_js(&Part { text: rest, end: Some("full") });
        }
        let unread = std::mem::take(&mut model.unread);
        let logits = text::read_all(&model.llama, &mut model.cache, &unread).map_err(js_error)?;
        let logits = logits.ok_or_else(|| JsError::new("no text was started"))?;
        let chosen = text::choose(logits, [Some(&mut model.sampler)]).await.map_err(js_error)?;
        let token = chosen.into_iter().flatten().next();
        let token = token.ok_or_else(|| JsError::new("there is no token"))?.map_err(js_error)?;
        if model.tokens.is_end(token) {
            let rest = std::mem::replace(&mut model.text, model.tokens.stream()).finish();
            return to_js(&Part { text: rest, end: Some("end") });
        }
        model.unread = vec![token];
        to_js(&Part { text: model.text.push(token), end: None })
    }
}

impl Text {
    fn model(&mut self) -> Result<&mut Model> {
        self.model.as_mut().ok_or_else(|| JsError::new("no model is loaded"))
    }
}
