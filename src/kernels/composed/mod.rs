//! Ops that are made of other kernels' launches, or only of views. Nothing here has a shader.

pub mod create;
pub mod quantized;
pub mod views;
