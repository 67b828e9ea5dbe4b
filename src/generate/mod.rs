//! Parts of a program that writes text with a trained model, a token at a time.
//!
//! - [`KvCache`] keeps the keys and values of the tokens before, in memory of a fixed size, for one sequence or for
//!   several that join and leave.
//! - [`Sampler`] chooses the next token.
//!
//! All of it also works on the CPU device.

mod cache;
mod sampler;

pub use cache::{CacheFull, KvCache, KvCacheConfig};
pub use sampler::{Sampler, Sampling};
