//! A [Burn](https://burn.dev) backend whose kernels are WGSL files that a person can read.
#![warn(missing_docs)]

pub mod backend;
pub mod device;
pub mod kernels;
pub mod runtime;
pub mod tensor;

pub use backend::{Wgsl, WgslTensor, fallbacks, memory, reset_fallbacks};
pub use device::WgslDevice;
