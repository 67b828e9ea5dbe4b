//! Ops composed of launches of other kernels, or of views only. None has a shader of its own.

pub(crate) mod attention;
pub mod create;
pub mod quantized;
pub mod views;
