//! Models from the tensors of a file.

use std::collections::BTreeMap;

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
    /// The names of the tensors, and their outputs.
    tensors: Vec<(String, usize)>,
    inputs: usize,
    /// The weights that are there.
    parts: BTreeMap<String, Weights>,
    linear: Option<Linear<B>>,
}

const EMBEDDINGS: &str = "token_embd.weight";

/// The products of a layer, by the first of their tensors.
const QKV: &str = "attn_q";
const PROJECTION: &str = "attn_output";
const GATE_AND_UP: &str = "ffn_gate";
const DOWN: &str = "ffn_down";

/// The norms of a layer, and the one behind all layers.
const ATTENTION_NORM: &str = "attn_norm";
const FEED_FORWARD_NORM: &str = "ffn_norm";
const OUTPUT_NORM: &str = "output_norm.weight";

/// Returns the name of a tensor of a layer.
fn in_layer(layer: usize, part: &str) -> String {
    format!("blk.{layer}.{part}.weight")
}

/// Returns the names of all norms.
fn norms(config: &Config) -> Vec<String> {
    let of_layer = |layer| [ATTENTION_NORM, FEED_FORWARD_NORM].map(|part| in_layer(layer, part));
    let of_layers = (0..config.layers).flat_map(of_layer);
    of_layers.chain([OUTPUT_NORM.to_owned()]).collect()
}

/// Returns the tensors of all products, with their outputs, and the inputs of the product.
fn products(header: &Header, config: &Config) -> Vec<(Vec<(String, usize)>, usize)> {
    let Config { vocabulary, width, hidden, kv_heads, layers, .. } = *config;
    let kv = kv_heads * config.head_width();
    let of_layer = |layer| {
        let products: [(&[(&str, usize)], usize); 4] = [
            (&[(QKV, width), ("attn_k", kv), ("attn_v", kv)], width),
            (&[(PROJECTION, width)], width),
            (&[(GATE_AND_UP, hidden), ("ffn_up", hidden)], width),
            (&[(DOWN, width)], hidden),
        ];
        let named = |&(part, outputs): &(&str, usize)| (in_layer(layer, part), outputs);
        products.map(|(tensors, inputs)| (tensors.iter().map(named).collect(), inputs))
    };
    // Without weights of its own, the last product has those of the embeddings.
    let has_output = header.tensors().contains_key(OUTPUT);
    let output = if has_output { OUTPUT } else { EMBEDDINGS };
    let output = (vec![(output.to_owned(), vocabulary)], width);
    (0..layers).flat_map(of_layer).chain([output]).collect()
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
        let product =
            |(tensors, inputs)| Product { tensors, inputs, parts: BTreeMap::new(), linear: None };
        let products = products(header, &config).into_iter().map(product);
        let products: BTreeMap<String, Product<B>> =
            products.map(|product| (product.tensors[0].0.clone(), product)).collect();
        let of = |(first, product): (&String, &Product<B>)| {
            let names = product.tensors.iter().map(|(name, _)| (name.clone(), first.clone()));
            names.collect::<Vec<_>>()
        };
        Ok(Self {
            config,
            form,
            device: device.clone(),
            positions: positions.min(config.context),
            embeddings: None,
            norms: BTreeMap::new(),
            product_of: products.iter().flat_map(of).collect(),
            products,
        })
    }

    /// Adds a tensor of the file. The weights of a product are uploaded when all of them are there.
    ///
    /// # Panics
    ///
    /// Panics if the device has no memory for the weights, or there are fewer bytes than the header says.
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
        let Product { tensors, inputs, parts, linear } = product;
        if parts.len() == tensors.len() {
            let weights = tensors.iter().filter_map(|(name, _)| parts.remove(name));
            let weights = Weights::joined(weights.collect::<Vec<_>>());
            let outputs = tensors.iter().map(|(_, outputs)| outputs).sum();
            *linear = Some(Linear::new(weights, [outputs, *inputs], self.form, &self.device));
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
            Ok(Layer {
                attention_norm: norm(&in_layer(index, ATTENTION_NORM))?,
                qkv: linear(&in_layer(index, QKV))?,
                projection: linear(&in_layer(index, PROJECTION))?,
                feed_forward_norm: norm(&in_layer(index, FEED_FORWARD_NORM))?,
                gate_and_up: linear(&in_layer(index, GATE_AND_UP))?,
                down: linear(&in_layer(index, DOWN))?,
            })
        };
        let layers: Result<Vec<Layer<B>>, LoadError> =
            (0..self.config.layers).map(&mut layer).collect();
        let layers = layers?;
        // The one that is left.
        let output = self.products.into_values().next().and_then(|product| product.linear);
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
fn expected(header: &Header, config: &Config) -> BTreeMap<String, Vec<usize>> {
    let Config { vocabulary, width, .. } = *config;
    let norms = norms(config).into_iter().map(|name| (name, vec![width]));
    let products = products(header, config).into_iter().flat_map(|(tensors, inputs)| {
        tensors.into_iter().map(move |(name, outputs)| (name, vec![outputs, inputs]))
    });
    // Those of the last product, or others.
    let embeddings = (EMBEDDINGS.to_owned(), vec![vocabulary, width]);
    norms.chain(products).chain([embeddings]).collect()
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
    let unknown = header.tensors().keys().filter(|name| !expected.contains_key(*name));
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
