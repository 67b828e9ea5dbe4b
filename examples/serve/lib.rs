//! Answers requests with trained models: each model has a thread of its own, which joins requests.

pub mod classifier;
pub mod device;
pub mod failure;
pub mod http;
pub mod load;
pub mod metrics;
pub mod models;
pub mod picture;
pub mod predict;
pub mod writer;
