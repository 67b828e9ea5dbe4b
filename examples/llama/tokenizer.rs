//! Tokens of text: byte pairs, with the vocabulary and the merges of a GGUF file.

use std::collections::BTreeSet;
use std::sync::Arc;

use thiserror::Error;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, PreTokenizerWrapper, Tokenizer};

use crate::gguf::{GgufError, Header, Value};

/// Why a file's tokens cannot be used.
#[derive(Debug, Error)]
pub enum TokenizerError {
    /// The file lacks a key.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The tokens are of another kind.
    #[error("tokens of the kind `{0}` are not supported, but byte pairs of `gpt2` are")]
    Kind(String),
    /// Words are split in another way.
    #[error("words split as `{0}` are not supported, but as `smollm` and `gpt-2` they are")]
    Split(String),
    /// The vocabulary and the merges do not fit each other, or a text has no tokens.
    #[error("the tokens are damaged: {0}")]
    Damaged(String),
}

/// The tokens of a model.
#[derive(Debug)]
pub struct Tokens {
    tokenizer: Arc<Tokenizer>,
    /// Tokens that end a text.
    ends: BTreeSet<u32>,
    /// The token before every text, if the model was trained with one.
    begin: Option<u32>,
}

/// The type of tokens that are not text, such as the end of a message.
const CONTROL: i64 = 3;

impl Tokens {
    /// Reads the tokens of a file.
    ///
    /// # Errors
    ///
    /// Returns an error if tokens are missing, damaged or of another kind.
    pub fn read(file: &Header) -> Result<Self, TokenizerError> {
        let kind = file.string("tokenizer.ggml.model")?;
        if kind != "gpt2" {
            return Err(TokenizerError::Kind(kind.to_owned()));
        }
        let splits = match file.string("tokenizer.ggml.pre")? {
            "smollm" => vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()],
            "gpt-2" => vec![ByteLevel::new(false, true, true).into()],
            other => return Err(TokenizerError::Split(other.to_owned())),
        };
        let damaged = |problem: String| TokenizerError::Damaged(problem);
        let tokens = file.strings("tokenizer.ggml.tokens")?;
        let vocabulary: Vocab = tokens.iter().cloned().zip(0u32..).collect();
        if vocabulary.len() != tokens.len() {
            return Err(damaged("a token is there twice".to_owned()));
        }
        let pair = |merge: &String| {
            let (first, second) =
                merge.split_once(' ').ok_or_else(|| damaged(format!("the merge {merge:?}")))?;
            Ok((first.to_owned(), second.to_owned()))
        };
        let merges: Result<Vec<(String, String)>, TokenizerError> =
            file.strings("tokenizer.ggml.merges")?.iter().map(pair).collect();
        let model = BPE::builder().vocab_and_merges(vocabulary, merges?).build();
        let mut tokenizer = Tokenizer::new(model.map_err(|error| damaged(error.to_string()))?);
        tokenizer.with_pre_tokenizer(Some(PreTokenizerWrapper::Sequence(Sequence::new(splits))));
        tokenizer.with_decoder(Some(ByteLevel::default()));
        let types = file.integers("tokenizer.ggml.token_type")?;
        let controls = tokens.iter().zip(types).filter(|&(_, &of_token)| of_token == CONTROL);
        let controls: Vec<AddedToken> = controls
            .map(|(token, _)| AddedToken::from(token.clone(), true).normalized(false))
            .collect();
        tokenizer.add_special_tokens(&controls);
        // What looks like a control token in a text is text.
        tokenizer.set_encode_special_tokens(true);
        let id = |key: &str| -> Result<Option<u32>, TokenizerError> {
            if file.get(key).is_none() {
                return Ok(None);
            }
            let id = file.size(key)?;
            let id = u32::try_from(id).ok().filter(|&id| (id as usize) < tokens.len());
            id.map(Some).ok_or_else(|| damaged(format!("`{key}` is no token")))
        };
        let mut ends: BTreeSet<u32> = ["<|endoftext|>", "<|im_end|>"]
            .iter()
            .filter_map(|end| tokenizer.token_to_id(end))
            .collect();
        ends.extend(id("tokenizer.ggml.eos_token_id")?);
        ends.extend(id("tokenizer.ggml.eot_token_id")?);
        let has_begin = file.get("tokenizer.ggml.add_bos_token") == Some(&Value::Bool(true));
        let begin = if has_begin { id("tokenizer.ggml.bos_token_id")? } else { None };
        Ok(Self { tokenizer: Arc::new(tokenizer), ends, begin })
    }

    /// Returns the tokens of a text. What looks like a control token is text, and bytes that the vocabulary lacks are
    /// left out.
    ///
    /// # Errors
    ///
    /// Returns an error if the text cannot be split.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self.tokenizer.encode(text, false);
        let encoding = encoding.map_err(|error| TokenizerError::Damaged(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Returns the tokens of a text that the model continues: after the one that begins a text, if there is one.
    ///
    /// # Errors
    ///
    /// As [`encode`](Self::encode).
    pub fn prompt(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoded = self.encode(text)?;
        Ok(self.begin.into_iter().chain(encoded).collect())
    }

    /// Returns the number of a token, given its name.
    pub fn control(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// Returns whether a token ends the text.
    pub fn is_end(&self, token: u32) -> bool {
        self.ends.contains(&token)
    }

    /// Returns a stream that turns tokens into text, as soon as they are whole characters.
    pub fn stream(&self) -> TextStream {
        TextStream { tokens: self.tokenizer.clone(), pending: Vec::new() }
    }
}

/// Text of tokens that arrive one by one.
#[derive(Debug)]
pub struct TextStream {
    tokens: Arc<Tokenizer>,
    /// Tokens whose text may not be whole.
    pending: Vec<u32>,
}

impl TextStream {
    /// Adds a token. Returns the text that is whole now.
    pub fn push(&mut self, token: u32) -> String {
        self.pending.push(token);
        let text = self.tokens.decode(&self.pending, true).unwrap_or_default();
        // A character of several tokens is not whole.
        if text.ends_with('\u{fffd}') && self.pending.len() < 8 {
            return String::new();
        }
        self.pending.clear();
        text
    }

    /// Returns the text of what is left: a character that is not whole.
    pub fn finish(self) -> String {
        self.tokens.decode(&self.pending, true).unwrap_or_default()
    }
}
