//! Parts of a program that answers requests with a model, which one thread owns.
//!
//! - [`requests`] is a queue of limited length, from which the thread of the model takes requests that it answers
//!   together.
//! - [`PaddedSizes`] are the sizes of batches, for which kernels are compiled when a program starts.
//!
//! All of it also works on the CPU device.

mod queue;
mod sizes;

pub use queue::{JoinConfig, Joined, Refusal, Refused, Requests, requests};
pub use sizes::PaddedSizes;
