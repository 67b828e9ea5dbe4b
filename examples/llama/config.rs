//! The sizes of a model, from the metadata of its file.

use thiserror::Error;

use crate::gguf::{GgufError, Header, Value};

/// The sizes of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    pub vocabulary: usize,
    pub layers: usize,
    /// Elements that represent a token.
    pub width: usize,
    /// Elements between the products of the feed-forward block.
    pub hidden: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values. Each of them is shared by `heads / kv_heads` heads of queries.
    pub kv_heads: usize,
    /// The most tokens that the model was trained for.
    pub context: usize,
    /// What RMS norm adds to the mean of squares.
    pub epsilon: f64,
    /// The base of the angles of rotary embeddings.
    pub theta: f64,
}

/// Why a file's model is not one of these.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file lacks a size.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The model has another architecture.
    #[error("the architecture `{0}` is not supported, but `llama` is")]
    Architecture(String),
    /// The sizes do not fit each other.
    #[error("the sizes of the model do not fit each other: {0}")]
    Sizes(String),
}

impl Config {
    /// Reads the sizes.
    ///
    /// # Errors
    ///
    /// Returns an error if the model has another architecture, a size is missing, or sizes do not fit each other.
    pub fn read(file: &Header) -> Result<Self, ConfigError> {
        let architecture = file.string("general.architecture")?;
        if architecture != "llama" {
            return Err(ConfigError::Architecture(architecture.to_owned()));
        }
        let vocabulary = match file.get("llama.vocab_size") {
            Some(_) => file.size("llama.vocab_size")?,
            None => file.strings("tokenizer.ggml.tokens")?.len(),
        };
        let heads = file.size("llama.attention.head_count")?;
        let kv_heads = match file.get("llama.attention.head_count_kv") {
            Some(_) => file.size("llama.attention.head_count_kv")?,
            None => heads,
        };
        let theta = match file.get("llama.rope.freq_base") {
            Some(_) => file.float("llama.rope.freq_base")?,
            None => 10_000.0,
        };
        let config = Self {
            vocabulary,
            layers: file.size("llama.block_count")?,
            width: file.size("llama.embedding_length")?,
            hidden: file.size("llama.feed_forward_length")?,
            heads,
            kv_heads,
            context: file.size("llama.context_length")?,
            epsilon: file.float("llama.attention.layer_norm_rms_epsilon")?,
            theta,
        };
        config.check(file)?;
        Ok(config)
    }

    fn check(&self, file: &Header) -> Result<(), ConfigError> {
        let Self { vocabulary, layers, width, hidden, heads, kv_heads, context, .. } = *self;
        if [vocabulary, layers, width, hidden, heads, kv_heads, context].contains(&0) {
            return Err(ConfigError::Sizes(format!("a size is 0: {self:?}")));
        }
        if !width.is_multiple_of(heads) || !heads.is_multiple_of(kv_heads) {
            return Err(ConfigError::Sizes(format!(
                "{width} elements, {heads} heads of queries and {kv_heads} of keys"
            )));
        }
        let tokens = file.strings("tokenizer.ggml.tokens").map_or(0, <[String]>::len);
        if tokens > vocabulary {
            return Err(ConfigError::Sizes(format!(
                "{tokens} tokens of a vocabulary of {vocabulary}"
            )));
        }
        // A layer has nine tensors.
        if layers > file.tensors().len() / 9 {
            let tensors = file.tensors().len();
            return Err(ConfigError::Sizes(format!("{layers} layers of {tensors} tensors")));
        }
        if [self.epsilon, self.theta].iter().any(|x| !x.is_finite() || *x <= 0.0) {
            return Err(ConfigError::Sizes(format!(
                "an epsilon of {} and a base of angles of {}",
                self.epsilon, self.theta
            )));
        }
        if let Some(Value::String(scaling)) = file.get("llama.rope.scaling.type")
            && scaling != "none"
        {
            return Err(ConfigError::Sizes(format!(
                "angles scaled by `{scaling}` are not supported"
            )));
        }
        if !self.head_width().is_multiple_of(2) {
            return Err(ConfigError::Sizes(format!("heads of {} elements", self.head_width())));
        }
        if let Some(rotated) = file.get("llama.rope.dimension_count")
            && file.size("llama.rope.dimension_count")? != self.head_width()
        {
            let width = self.head_width();
            return Err(ConfigError::Sizes(format!(
                "{rotated:?} of {width} elements of a head are rotated"
            )));
        }
        Ok(())
    }

    /// Returns the elements of a head.
    pub fn head_width(&self) -> usize {
        self.width / self.heads
    }
}
