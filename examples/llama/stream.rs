//! A model from bytes that arrive one after another, as from a network: tensors are uploaded while others are on their
//! way.

use std::io;

use burn::tensor::backend::Backend;
use thiserror::Error;

use crate::gguf::{GgufError, Header};
use crate::linear::Form;
use crate::model::{Llama, LoadError, Loading};
use crate::tokenizer::{TokenizerError, Tokens};

/// Why a model cannot be loaded.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The file is damaged, or does not fit a model.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The file has no tokens that can be used.
    #[error(transparent)]
    Tokens(#[from] TokenizerError),
    /// The bytes end too early.
    #[error("the file ends after {arrived} of {len} bytes")]
    Cut { arrived: u64, len: u64 },
    /// There are more bytes than the file has.
    #[error("there are more than the {0} bytes of the file")]
    TooLong(u64),
}

/// What has arrived.
#[derive(Debug)]
pub struct Stream<B: Backend> {
    /// The bytes of the file.
    len: u64,
    positions: usize,
    form: Form,
    device: B::Device,
    /// What was not used yet.
    buffer: Vec<u8>,
    /// The position of the buffer in the file.
    position: u64,
    /// Bytes with which the header is tried next.
    next_try: usize,
    parts: Option<Parts<B>>,
}

/// What is known after the header.
#[derive(Debug)]
struct Parts<B: Backend> {
    header: Header,
    tokens: Tokens,
    loading: Loading<B>,
    /// Tensors that have not arrived: their start and name, the last one first.
    left: Vec<(u64, String)>,
}

impl<B: Backend> Stream<B> {
    /// Begins to load a model from a file of `len` bytes, which reads at most `positions` tokens.
    pub fn new(len: u64, positions: usize, form: Form, device: &B::Device) -> Self {
        Self {
            len,
            positions,
            form,
            device: device.clone(),
            buffer: Vec::new(),
            position: 0,
            next_try: 1 << 16,
            parts: None,
        }
    }

    /// Returns how many bytes have arrived.
    pub fn arrived(&self) -> u64 {
        self.position + self.buffer.len() as u64
    }

    /// Adds bytes, and uploads the weights that are whole.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is damaged or does not fit a model, or there are too many bytes.
    ///
    /// # Panics
    ///
    /// Panics if the device has no memory for the weights.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        if self.arrived() + bytes.len() as u64 > self.len {
            return Err(StreamError::TooLong(self.len));
        }
        self.buffer.extend_from_slice(bytes);
        let is_last = self.arrived() == self.len;
        if self.parts.is_none() && (is_last || self.buffer.len() >= self.next_try) {
            // A header that is not whole is read again, when twice as much is there.
            self.next_try = self.buffer.len() * 2;
            self.parts = self.header()?;
        }
        let Some(parts) = &mut self.parts else { return Ok(()) };
        let mut used = 0;
        while let Some((start, name)) = parts.left.last() {
            let info = &parts.header.tensors()[name];
            let start = (start - self.position) as usize;
            let Some(blocks) = self.buffer.get(start..start + info.bytes as usize) else { break };
            parts.loading.add(name, info.block_type, blocks);
            used = start + blocks.len();
            parts.left.pop();
        }
        // What is between tensors, and after them, is left out.
        let next = parts.left.last().map_or(u64::MAX, |(start, _)| start - self.position);
        used = used.max(next.min(self.buffer.len() as u64) as usize);
        self.buffer.drain(..used);
        self.position += used as u64;
        Ok(())
    }

    /// Reads the header, if it is whole.
    fn header(&self) -> Result<Option<Parts<B>>, StreamError> {
        let header = match Header::read(self.buffer.as_slice(), self.len) {
            Ok(header) => header,
            Err(GgufError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(None);
            }
            Err(error) => return Err(LoadError::from(error).into()),
        };
        let tokens = Tokens::read(&header)?;
        let loading = Loading::new(&header, self.positions, self.form, &self.device)?;
        let tensors = header.tensors().iter();
        let mut left: Vec<(u64, String)> =
            tensors.map(|(name, info)| (info.start, name.clone())).collect();
        left.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Some(Parts { header, tokens, loading, left }))
    }

    /// Returns the model and its tokens.
    ///
    /// # Errors
    ///
    /// Returns an error if tensors have not arrived.
    pub fn finish(self) -> Result<(Llama<B>, Tokens), StreamError> {
        let arrived = self.arrived();
        match self.parts {
            Some(parts) if parts.left.is_empty() => Ok((parts.loading.finish()?, parts.tokens)),
            _ => Err(StreamError::Cut { arrived, len: self.len }),
        }
    }
}
