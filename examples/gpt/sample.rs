//! Text from a trained model.

use burn::tensor::backend::{Backend, ExecutionError};
use burn::tensor::{FloatDType, Tensor};
use burn_wgsl::generate::{KvCache, Sampler};
use digits::tensors::int_tensor;

use crate::model::Gpt;

/// Writes a text with a model. The keys and values of its tokens are kept, so that each is read once.
#[derive(Debug)]
pub struct Writer<B: Backend> {
    model: Gpt<B>,
    cache: KvCache<B>,
    tokens: Vec<i32>,
    /// Tokens at the end of the text that the cache does not have yet.
    unread: usize,
}

impl<B: Backend> Writer<B> {
    /// Begins a text with tokens, of which there must be at least one.
    ///
    /// # Panics
    ///
    /// Panics if there is no token.
    pub fn new(model: Gpt<B>, prompt: Vec<i32>) -> Self {
        assert!(!prompt.is_empty(), "a text begins with a token");
        let cache = model.cache();
        let unread = prompt.len();
        Self { model, cache, tokens: prompt, unread }
    }

    /// Returns the tokens of the text.
    pub fn tokens(&self) -> &[i32] {
        &self.tokens
    }

    /// Writes the next token, and returns it.
    ///
    /// A model reads a limited number of tokens, and each has its position. Where there is no room for more, it reads
    /// the last half of them again as if the text began there.
    ///
    /// # Errors
    ///
    /// Returns an error if the device fails.
    pub async fn next(&mut self, sampler: &mut Sampler) -> Result<i32, ExecutionError> {
        if self.cache.check_room(self.unread).is_err() {
            self.cache.clear(0);
            self.unread = self.tokens.len().min(self.model.context().div_ceil(2));
        }
        let new = self.tokens[self.tokens.len() - self.unread..].to_vec();
        let tokens: Tensor<B, 1, _> = int_tensor(new, &self.model.device());
        let logits = self.model.read(tokens, &mut self.cache);
        let logits = logits.cast(FloatDType::F32).into_data_async().await?;
        let logits: Vec<f32> = logits.iter::<f32>().collect();
        // A model whose logits are all NaN writes the first token of its vocabulary.
        let token = sampler.choose(&logits).unwrap_or(0) as i32;
        self.tokens.push(token);
        self.unread = 1;
        Ok(token)
    }
}
