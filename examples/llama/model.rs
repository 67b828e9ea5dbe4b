//! The model: layers of attention and of products with a gate, as in Llama (H. Touvron et al., 2023).

use std::collections::BTreeSet;

use burn::module::Param;
use burn::nn::{RmsNorm, RmsNormConfig};
use burn::tensor::backend::Backend;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Tensor, TensorData, activation};
use burn_wgsl::generate::{CacheFull, KvCache, KvCacheConfig};
use thiserror::Error;

use crate::blocks::BlockType;
use crate::config::{Config, ConfigError};
use crate::gguf::{Gguf, GgufError};
use crate::linear::{Form, Linear, Weights};
use crate::rotary::{Rotary, Rotation};

/// Why a model cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The model is not supported.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Tensors are missing, or have other shapes.
    #[error("the file does not fit the model:\n{}", .0.join("\n"))]
    Tensors(Vec<String>),
}

/// A model on a device.
#[derive(Debug)]
pub struct Llama<B: Backend> {
    config: Config,
    form: Form,
    device: B::Device,
    /// The embeddings of tokens as the file has them: a step needs a few rows.
    embeddings: (BlockType, Vec<u8>),
    layers: Vec<Layer<B>>,
    norm: RmsNorm<B>,
    output: Linear<B>,
    rotary: Rotary<B>,
    /// The positions that [`rotary`](Self::rotary) has.
    positions: usize,
}

#[derive(Debug)]
struct Layer<B: Backend> {
    attention_norm: RmsNorm<B>,
    /// Queries, keys and values.
    qkv: Linear<B>,
    projection: Linear<B>,
    feed_forward_norm: RmsNorm<B>,
    gate_and_up: Linear<B>,
    down: Linear<B>,
}

/// The weights of the last product, which may be those of the embeddings.
const OUTPUT: &str = "output.weight";

/// Reads the tensors of a model.
struct Loader<'a, B: Backend> {
    file: &'a mut Gguf,
    config: Config,
    form: Form,
    device: &'a B::Device,
}

impl<B: Backend> Loader<'_, B> {
    /// Returns the names of all tensors, and their shapes.
    fn expected(&self) -> Vec<(String, Vec<usize>)> {
        let Config { vocabulary, layers, width, hidden, .. } = self.config;
        let kv = self.config.kv_heads * self.config.head_width();
        let mut expected = vec![
            ("token_embd.weight".to_owned(), vec![vocabulary, width]),
            ("output_norm.weight".to_owned(), vec![width]),
        ];
        for layer in 0..layers {
            let shapes: [(&str, &[usize]); 9] = [
                ("attn_norm", &[width]),
                ("attn_q", &[width, width]),
                ("attn_k", &[kv, width]),
                ("attn_v", &[kv, width]),
                ("attn_output", &[width, width]),
                ("ffn_norm", &[width]),
                ("ffn_gate", &[hidden, width]),
                ("ffn_up", &[hidden, width]),
                ("ffn_down", &[width, hidden]),
            ];
            let named =
                shapes.map(|(name, shape)| (format!("blk.{layer}.{name}.weight"), shape.to_vec()));
            expected.extend(named);
        }
        if self.file.tensors().contains_key(OUTPUT) {
            expected.push((OUTPUT.to_owned(), vec![vocabulary, width]));
        }
        expected
    }

    /// Checks the names and shapes of all tensors. Others than these, such as biases, would be left out.
    fn check(&self) -> Result<(), LoadError> {
        let problem = |(name, shape): (String, Vec<usize>)| match self.file.tensors().get(&name) {
            None => Some(format!("`{name}` is missing")),
            Some(info) if info.shape != shape => {
                Some(format!("`{name}` is {:?}, not {shape:?}", info.shape))
            }
            Some(_) => None,
        };
        let expected = self.expected();
        let known: BTreeSet<&String> = expected.iter().map(|(name, _)| name).collect();
        let unknown = self.file.tensors().keys().filter(|name| !known.contains(name));
        let unknown: Vec<String> =
            unknown.map(|name| format!("`{name}` is not supported")).collect();
        let mut problems: Vec<String> = expected.into_iter().filter_map(problem).collect();
        problems.extend(unknown);
        if problems.is_empty() { Ok(()) } else { Err(LoadError::Tensors(problems)) }
    }

    fn weights(&mut self, name: &str) -> Result<Weights, GgufError> {
        let (info, bytes) = self.file.read(name)?;
        Ok(Weights::new(info.block_type, &bytes, self.form))
    }

    /// Joins the weights of some tensors, which have the same inputs.
    fn linear(
        &mut self,
        names: &[String],
        [outputs, inputs]: [usize; 2],
    ) -> Result<Linear<B>, GgufError> {
        let parts: Result<Vec<Weights>, GgufError> =
            names.iter().map(|name| self.weights(name)).collect();
        Ok(Linear::new(Weights::joined(parts?), [outputs, inputs], self.form, self.device))
    }

    fn norm(&mut self, name: &str) -> Result<RmsNorm<B>, GgufError> {
        let (info, bytes) = self.file.read(name)?;
        let dtype = self.form.activations();
        let gamma = TensorData::new(info.block_type.floats(&bytes), [self.config.width])
            .convert_dtype(dtype);
        let norm = RmsNormConfig::new(self.config.width).with_epsilon(self.config.epsilon);
        let mut norm: RmsNorm<B> = norm.init(self.device);
        norm.gamma = Param::from_tensor(Tensor::from_data(gamma, (self.device, dtype)));
        Ok(norm)
    }

    fn layer(&mut self, index: usize) -> Result<Layer<B>, GgufError> {
        let Config { width, hidden, kv_heads, .. } = self.config;
        let kv = kv_heads * self.config.head_width();
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let names = |parts: &[&str]| parts.iter().map(|part| name(part)).collect::<Vec<_>>();
        Ok(Layer {
            attention_norm: self.norm(&name("attn_norm"))?,
            qkv: self.linear(&names(&["attn_q", "attn_k", "attn_v"]), [width + 2 * kv, width])?,
            projection: self.linear(&names(&["attn_output"]), [width, width])?,
            feed_forward_norm: self.norm(&name("ffn_norm"))?,
            gate_and_up: self.linear(&names(&["ffn_gate", "ffn_up"]), [2 * hidden, width])?,
            down: self.linear(&names(&["ffn_down"]), [width, hidden])?,
        })
    }
}

impl<B: Backend> Llama<B> {
    /// Loads a model that reads at most `positions` tokens.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, the model is not supported, or tensors are missing or have other
    /// shapes: all of them are listed.
    ///
    /// # Panics
    ///
    /// Panics if the device has no memory for the weights.
    pub fn load(
        file: &mut Gguf,
        positions: usize,
        form: Form,
        device: &B::Device,
    ) -> Result<Self, LoadError> {
        let config = Config::read(file)?;
        let positions = positions.min(config.context);
        let mut loader = Loader::<B> { file, config, form, device };
        loader.check()?;
        let layers: Result<Vec<Layer<B>>, GgufError> =
            (0..config.layers).map(|i| loader.layer(i)).collect();
        let norm = loader.norm("output_norm.weight")?;
        // Without weights of its own, the last product has those of the embeddings.
        let has_output = loader.file.tensors().contains_key(OUTPUT);
        let output = if has_output { OUTPUT } else { "token_embd.weight" };
        let output = loader.linear(&[output.to_owned()], [config.vocabulary, config.width])?;
        let (info, bytes) = loader.file.read("token_embd.weight")?;
        Ok(Self {
            config,
            form,
            device: device.clone(),
            embeddings: (info.block_type, bytes),
            layers: layers?,
            norm,
            output,
            rotary: Rotary::new(&config, positions, device),
            positions,
        })
    }

    /// Returns an empty cache for so many sequences of `capacity` tokens.
    pub fn cache(&self, sequences: usize, capacity: usize) -> KvCache<B> {
        let Config { layers, kv_heads, .. } = self.config;
        let capacity = capacity.min(self.positions);
        let width = self.config.head_width();
        let config = KvCacheConfig { layers, sequences, heads: kv_heads, capacity, width };
        KvCache::new(config, self.form.activations(), &self.device)
    }

    /// Reads tokens: several of the only sequence of a cache, or one of each. Returns the logits after each sequence,
    /// `[sequences, vocabulary]`.
    ///
    /// # Errors
    ///
    /// Returns an error if the cache has no room.
    ///
    /// # Panics
    ///
    /// Panics if there are no tokens, several for a cache of several sequences, or one that is not of the vocabulary,
    /// or if the cache is larger than the positions of [`load`](Self::load).
    pub fn read(&self, tokens: &[u32], cache: &mut KvCache<B>) -> Result<Tensor<B, 2>, CacheFull> {
        let sequences = cache.config().sequences;
        let new = if sequences == 1 { tokens.len() } else { 1 };
        assert!(new > 0 && tokens.len() == sequences * new, "one token for each sequence");
        assert!(cache.config().capacity <= self.positions, "a cache of another model");
        cache.check_room(new)?;
        let positions = match sequences {
            1 => {
                let first = cache.len(0) as i32;
                let positions: Vec<i32> = (first..first + new as i32).collect();
                Tensor::from_data(positions.as_slice(), &self.device)
            }
            _ => cache.positions(),
        };
        let rotation = self.rotary.at(positions, &self.config);
        let mask = if new == 1 { cache.mask() } else { None };
        let mut x = self.embed(tokens);
        for (index, layer) in self.layers.iter().enumerate() {
            let attended = self.attend(index, layer, &rotation, &x, (cache, mask.as_ref()));
            x = x + layer.projection.forward(attended);
            let normed = layer.feed_forward_norm.forward(x.clone());
            let [gate, up] =
                layer.gate_and_up.forward(normed).chunk(2, 1).try_into().expect("two parts");
            x = x + layer.down.forward(activation::silu(gate) * up);
        }
        cache.advance(new);
        // Of a sequence, the last token only.
        let last = if sequences == 1 { x.slice([new - 1..new, 0..self.config.width]) } else { x };
        Ok(self.output.forward(self.norm.forward(last)))
    }

    /// Returns the embeddings of tokens, `[tokens, width]`.
    fn embed(&self, tokens: &[u32]) -> Tensor<B, 2> {
        let (block_type, bytes) = &self.embeddings;
        let width = self.config.width;
        let row_bytes = width / block_type.elements() * block_type.bytes();
        let row =
            |&token: &u32| block_type.floats(&bytes[token as usize * row_bytes..][..row_bytes]);
        let rows: Vec<f32> = tokens.iter().flat_map(row).collect();
        let dtype = self.form.activations();
        let data = TensorData::new(rows, [tokens.len(), width]).convert_dtype(dtype);
        Tensor::from_data(data, (&self.device, dtype))
    }

    /// Returns the attention of new tokens to all of their sequences, `[tokens, width]`.
    fn attend(
        &self,
        index: usize,
        layer: &Layer<B>,
        rotation: &Rotation<B>,
        x: &Tensor<B, 2>,
        (cache, mask): (&mut KvCache<B>, Option<&Tensor<B, 4, Bool>>),
    ) -> Tensor<B, 2> {
        let Config { heads, kv_heads, width, .. } = self.config;
        let (head, each) = (self.config.head_width(), heads / kv_heads);
        let [tokens, _] = x.dims();
        let sequences = cache.config().sequences;
        let new = tokens / sequences;
        let normed = layer.attention_norm.forward(x.clone());
        let qkv = rotation.apply(layer.qkv.forward(normed), &self.config);
        let [q, kv] = [0..heads, heads..heads + 2 * kv_heads]
            .map(|part| qkv.clone().slice([0..tokens, part]));
        let kv = kv.reshape([sequences, new, 2, kv_heads, head]).permute([2, 0, 3, 1, 4]);
        let [keys, values] = cache.append(index, kv);
        let options = AttentionModuleOptions::default();
        if new == 1 {
            // The queries of a head of keys are rows of one attention: keys are not repeated.
            let q = q.reshape([sequences, kv_heads, each, head]);
            return attention(q, keys, values, mask.cloned(), None, options)
                .reshape([tokens, width]);
        }
        let [_, _, columns, _] = keys.dims();
        let repeated = |x: Tensor<B, 4>| {
            let x = x
                .reshape([1, kv_heads, 1, columns, head])
                .expand([1, kv_heads, each, columns, head]);
            x.reshape([1, heads, columns, head])
        };
        let q = q.reshape([1, tokens, heads, head]).swap_dims(1, 2);
        let options = AttentionModuleOptions { is_causal: true, ..options };
        let out = attention(q, repeated(keys), repeated(values), None, None, options);
        out.swap_dims(1, 2).reshape([tokens, width])
    }
}
