//! The parts of the GPT example that need no terminal and no file system: model, text, loss, training step
//! and sampling. The web pages use them too.

pub mod corpus;
pub mod model;
pub mod sample;
pub mod train;
pub mod weights;
