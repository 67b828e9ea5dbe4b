//! Models from the tensors of a file.

use std::collections::{BTreeMap, BTreeSet};

use burn::module::Param;
use burn::nn::{RmsNorm, RmsNormConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use thiserror::Error;

use super::{Layer, Llama};
use crate::blocks::BlockType;
use crate::config::{Config, ConfigError};
use crate::gguf::{Gguf, GgufError, Header};
use crate::linear::{Form, Linear, Weights};
use crate::rotary::Rotary;

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

/// The weights of the last product, which may be those of the embeddings.
const OUTPUT: &str = "output.weight";

/// A model that is loaded: the tensors of its file are added in any order.
#[derive(Debug)]
pub struct Loading<B: Backend> {
    config: Config,
    form: Form,
    device: B::Device,
    positions: usize,
    embeddings: Option<(BlockType, Vec<u8>)>,
    norms: BTreeMap<String, RmsNorm<B>>,
    /// By the name of the first of their tensors.
    products: BTreeMap<String, Product<B>>,
    /// The product of each tensor.
    product_of: BTreeMap<String, String>,
}

/// A product with the weights of some tensors, which have the same inputs.
#[derive(Debug)]
struct Product<B: Backend> {
    names: Vec<String>,
    shape: [usize; 2],
    /// The weights that are there.
    parts: BTreeMap<String, Weights>,
    linear: Option<Linear<B>>,
}

const EMBEDDINGS: &str = "token_embd.weight";
const OUTPUT_NORM: &str = "output_norm.weight";

/// The products of a layer, by their tensors.
const QKV: [&str; 3] = ["attn_q", "attn_k", "attn_v"];
const GATE_AND_UP: [&str; 2] = ["ffn_gate", "ffn_up"];

/// Returns the names of tensors of a layer.
fn in_layer(layer: usize, parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| format!("blk.{layer}.{part}.weight")).collect()
}

impl<B: Backend> Loading<B> {
    /// Begins to load a model that reads at most `positions` tokens.
    ///
    /// # Errors
    ///
    /// Returns an error if the model is not supported, or tensors are missing or have other shapes: all of them are
    /// listed.
    pub fn new(
        header: &Header,
        positions: usize,
        form: Form,
        device: &B::Device,
    ) -> Result<Self, LoadError> {
        let config = Config::read(header)?;
        check(header, &config)?;
        let Config { vocabulary, width, hidden, kv_heads, layers, .. } = config;
        let kv = kv_heads * config.head_width();
        // Without weights of its own, the last product has those of the embeddings.
        let has_output = header.tensors().contains_key(OUTPUT);
        let output = if has_output { OUTPUT } else { EMBEDDINGS };
        let mut groups = vec![(vec![output.to_owned()], [vocabulary, width])];
        for layer in 0..layers {
            groups.extend([
                (in_layer(layer, &QKV), [width + 2 * kv, width]),
                (in_layer(layer, &["attn_output"]), [width, width]),
                (in_layer(layer, &GATE_AND_UP), [2 * hidden, width]),
                (in_layer(layer, &["ffn_down"]), [width, hidden]),
            ]);
        }
        let of = |names: &Vec<String>| {
            names.iter().map(|name| (name.clone(), names[0].clone())).collect::<Vec<_>>()
        };
        let product_of = groups.iter().flat_map(|(names, _)| of(names)).collect();
        let product = |(names, shape): (Vec<String>, _)| {
            (names[0].clone(), Product { names, shape, parts: BTreeMap::new(), linear: None })
        };
        Ok(Self {
            config,
            form,
            device: device.clone(),
            positions: positions.min(config.context),
            embeddings: None,
            norms: BTreeMap::new(),
            products: groups.into_iter().map(product).collect(),
            product_of,
        })
    }

    /// Adds a tensor of the file. The weights of a product are uploaded when all of them are there.
    ///
    /// # Panics
    ///
    /// Panics if the file has no such tensor, or the device has no memory for the weights.
    pub fn add(&mut self, name: &str, block_type: BlockType, bytes: &[u8]) {
        if name == EMBEDDINGS {
            self.embeddings = Some((block_type, bytes.to_vec()));
        }
        if name.ends_with("_norm.weight") {
            self.norms.insert(name.to_owned(), self.norm(&block_type.floats(bytes)));
            return;
        }
        // The embeddings may have no product.
        let Some(product) = self.product_of.get(name) else { return };
        let product = self.products.get_mut(product).expect("there is one of this name");
        product.parts.insert(name.to_owned(), Weights::new(block_type, bytes, self.form));
        if product.parts.len() == product.names.len() {
            let parts = product.names.iter().filter_map(|name| product.parts.remove(name));
            let weights = Weights::joined(parts.collect::<Vec<_>>());
            product.linear = Some(Linear::new(weights, product.shape, self.form, &self.device));
        }
    }

    fn norm(&self, gamma: &[f32]) -> RmsNorm<B> {
        let Config { width, epsilon, .. } = self.config;
        let dtype = self.form.activations();
        let gamma = TensorData::new(gamma.to_vec(), [width]).convert_dtype(dtype);
        let mut norm: RmsNorm<B> =
            RmsNormConfig::new(width).with_epsilon(epsilon).init(&self.device);
        norm.gamma = Param::from_tensor(Tensor::from_data(gamma, (&self.device, dtype)));
        norm
    }

    /// Returns the model.
    ///
    /// # Errors
    ///
    /// Returns an error if tensors were not added.
    pub fn finish(mut self) -> Result<Llama<B>, LoadError> {
        let missing = |name: &str| LoadError::Tensors(vec![format!("`{name}` did not arrive")]);
        let mut norm = |name: &str| self.norms.remove(name).ok_or_else(|| missing(name));
        let mut linear = |name: &str| {
            let product = self.products.remove(name);
            product.and_then(|product| product.linear).ok_or_else(|| missing(name))
        };
        let mut layer = |index: usize| {
            let name = |part: &str| format!("blk.{index}.{part}.weight");
            Ok(Layer {
                attention_norm: norm(&name("attn_norm"))?,
                qkv: linear(&name(QKV[0]))?,
                projection: linear(&name("attn_output"))?,
                feed_forward_norm: norm(&name("ffn_norm"))?,
                gate_and_up: linear(&name(GATE_AND_UP[0]))?,
                down: linear(&name("ffn_down"))?,
            })
        };
        let layers: Result<Vec<Layer<B>>, LoadError> =
            (0..self.config.layers).map(&mut layer).collect();
        let layers = layers?;
        let has_output = self.products.contains_key(OUTPUT);
        let output = if has_output { OUTPUT } else { EMBEDDINGS };
        let output = self.products.remove(output).and_then(|product| product.linear);
        Ok(Llama {
            rotary: Rotary::new(&self.config, self.positions, &self.device),
            config: self.config,
            form: self.form,
            device: self.device,
            embeddings: self.embeddings.ok_or_else(|| missing(EMBEDDINGS))?,
            layers,
            norm: self.norms.remove(OUTPUT_NORM).ok_or_else(|| missing(OUTPUT_NORM))?,
            output: output.ok_or_else(|| missing(OUTPUT))?,
            positions: self.positions,
        })
    }
}

/// Returns the names of all tensors, and their shapes.
fn expected(header: &Header, config: &Config) -> Vec<(String, Vec<usize>)> {
    let Config { vocabulary, layers, width, hidden, .. } = *config;
    let kv = config.kv_heads * config.head_width();
    let mut expected = vec![
        (EMBEDDINGS.to_owned(), vec![vocabulary, width]),
        (OUTPUT_NORM.to_owned(), vec![width]),
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
    if header.tensors().contains_key(OUTPUT) {
        expected.push((OUTPUT.to_owned(), vec![vocabulary, width]));
    }
    expected
}

/// Checks the names and shapes of all tensors. Others than these, such as biases, would be left out.
fn check(header: &Header, config: &Config) -> Result<(), LoadError> {
    let problem = |(name, shape): (String, Vec<usize>)| match header.tensors().get(&name) {
        None => Some(format!("`{name}` is missing")),
        Some(info) if info.shape != shape => {
            Some(format!("`{name}` is {:?}, not {shape:?}", info.shape))
        }
        Some(_) => None,
    };
    let expected = expected(header, config);
    let known: BTreeSet<&String> = expected.iter().map(|(name, _)| name).collect();
    let unknown = header.tensors().keys().filter(|name| !known.contains(name));
    let unknown: Vec<String> = unknown.map(|name| format!("`{name}` is not supported")).collect();
    let mut problems: Vec<String> = expected.into_iter().filter_map(problem).collect();
    problems.extend(unknown);
    if problems.is_empty() { Ok(()) } else { Err(LoadError::Tensors(problems)) }
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
        let mut loading = Loading::new(file.header(), positions, form, device)?;
        let names: Vec<String> = file.header().tensors().keys().cloned().collect();
        for name in names {
            let (info, bytes) = file.read(&name)?;
            loading.add(&name, info.block_type, &bytes);
        }
        loading.finish()
    }
}
