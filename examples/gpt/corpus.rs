//! A text, with characters as tokens.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use digits::rng::Rng;
use digits::tensors::int_tensor;

/// A text as tokens.
pub struct Corpus {
    /// The characters of the text in ascending order. A token is an index into this list.
    vocabulary: Vec<char>,
    tokens: Vec<i32>,
}

/// Excerpts of a text, and for each position the token that follows: `[batch, length]`.
pub struct Batch<B: Backend> {
    /// The tokens.
    pub inputs: Tensor<B, 2, Int>,
    /// The tokens that follow them.
    pub targets: Tensor<B, 2, Int>,
}

impl Corpus {
    /// Creates the tokens of a text.
    pub fn new(text: &str) -> Self {
        let mut vocabulary: Vec<char> = text.chars().collect();
        vocabulary.sort_unstable();
        vocabulary.dedup();
        let mut corpus = Self { vocabulary, tokens: Vec::new() };
        corpus.tokens = corpus.encode(text);
        corpus
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Returns the number of different tokens.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// Returns the tokens of a text, without the characters that the vocabulary lacks.
    pub fn encode(&self, text: &str) -> Vec<i32> {
        let known = text.chars().filter_map(|c| self.vocabulary.binary_search(&c).ok());
        known.map(|index| index as i32).collect()
    }

    /// Returns the text of tokens.
    ///
    /// # Panics
    ///
    /// Panics if a token is not less than the size of the vocabulary.
    pub fn decode(&self, tokens: &[i32]) -> String {
        tokens.iter().map(|&token| self.vocabulary[token as usize]).collect()
    }

    /// Divides the tokens: the last tenth is for testing.
    pub fn split(&self) -> [Range<usize>; 2] {
        let end = self.len() - self.len() / 10;
        [0..end, end..self.len()]
    }

    /// Uploads `count` random excerpts of `length` tokens from a range of the tokens.
    ///
    /// # Panics
    ///
    /// Panics unless the range is longer than an excerpt.
    pub fn excerpts<B: Backend>(
        &self,
        range: Range<usize>,
        [count, length]: [usize; 2],
        rng: &mut Rng,
        device: &B::Device,
    ) -> Batch<B> {
        let offsets = range.len().checked_sub(length).filter(|&offsets| offsets > 0);
        let offsets = offsets.expect("the range is longer than an excerpt");
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let start = range.start + rng.below(offsets as u64) as usize;
            inputs.extend_from_slice(&self.tokens[start..start + length]);
            targets.extend_from_slice(&self.tokens[start + 1..=start + length]);
        }
        let tensor = |tokens| int_tensor(tokens, device).reshape([count, length]);
        Batch { inputs: tensor(inputs), targets: tensor(targets) }
    }
}
