//! Gradients, mixed precision and models.

#[path = "../common/mod.rs"]
mod common;

mod autocast;
mod autodiff;
mod behaviour;
mod gradients;
mod graphs;
mod models;
#[cfg(feature = "train")]
mod scaler;
