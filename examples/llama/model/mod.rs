//! The model: layers of attention and of products with a gate, as in Llama (H. Touvron et al., 2023).

mod loading;

pub use loading::{LoadError, Loading};

use burn::nn::RmsNorm;
use burn::tensor::backend::Backend;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Tensor, TensorData, activation};
use burn_wgsl::generate::{CacheFull, KvCache, KvCacheConfig};

use crate::blocks::BlockType;
use crate::config::Config;
use crate::linear::{Form, Linear};
use crate::rotary::{Rotary, Rotation};

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

impl<B: Backend> Llama<B> {
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
        let rotation = self.rotary.at(positions, self.form.activations(), &self.config);
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
        let [q, kv] = rotation.apply(layer.qkv.forward(normed), &self.config);
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
