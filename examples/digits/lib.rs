//! The parts of the digits example that need no terminal and no file system: network, dataset,
//! training step and model files. The web pages use them too.

pub mod data;
pub mod learner;
pub mod model;
pub mod rng;
pub mod tensors;
pub mod weights;
