//! Gradients, mixed precision, models, and parts of programs that train, write text or answer requests.

#[path = "../common/mod.rs"]
mod common;

mod autocast;
mod autodiff;
mod batch_norm;
mod behaviour;
#[cfg(feature = "train")]
mod checkpoints;
#[cfg(feature = "train")]
mod cnn;
mod composed_attention;
mod gradients;
mod graphs;
#[cfg(feature = "train")]
mod kit;
#[cfg(feature = "learner")]
mod learner;
#[cfg(feature = "train")]
mod loader;
#[cfg(feature = "train")]
mod metrics;
mod models;
#[cfg(feature = "train")]
mod networks;
#[cfg(feature = "train")]
mod parallel;
#[cfg(feature = "train")]
mod pipeline;
#[cfg(feature = "serve")]
mod requests;
#[cfg(feature = "train")]
mod resumed;
#[cfg(feature = "train")]
mod scaler;
#[cfg(feature = "train")]
mod segments;
#[cfg(feature = "train")]
mod staging;
#[cfg(feature = "generate")]
mod text;
#[cfg(feature = "train")]
mod torch;
