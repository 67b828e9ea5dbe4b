//! Models of the Llama family from GGUF files, and text that they write.

pub mod blocks;
pub mod chat;
pub mod config;
pub mod gguf;
pub mod linear;
pub mod model;
pub mod rotary;
pub mod stream;
pub mod text;
pub mod tokenizer;
