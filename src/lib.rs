//! A [Burn](https://burn.dev) backend whose kernels are WGSL files that a person can read, run by wgpu on
//! Vulkan, Metal and DX12. One training program, any GPU; with no GPU, the same program on the CPU.
//!
//! ```
//! use burn::backend::Autodiff;
//! use burn::tensor::Tensor;
//! use burn_wgsl::{Wgsl, WgslDevice};
//!
//! type B = Autodiff<Wgsl>;
//!
//! // The best GPU there is, or the CPU; `BURN_WGSL_DEVICE` says otherwise.
//! let device = WgslDevice::default();
//! let x = Tensor::<B, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device).require_grad();
//! let loss = (x.clone() * x.clone()).sum();
//! let grads = loss.backward();
//! let grad = x.grad(&grads).unwrap();
//! assert_eq!(grad.into_data().to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
//! ```
//!
//! - [`WgslDevice`] says where tensors live, and [`device`] what there is.
//! - [`fallbacks`] tells which ops ran on the CPU for want of a kernel.
//! - [`memory`] tells what a device holds.
//! - [`profile`] tells the GPU time of each kernel.
//! - [`open`] finds and opens a device for those who await, as a browser must; [`close`] gives it back.
//! - [`tune`] finds out how matrix products are fastest on a device.
//!
//! The modules are the layers of the crate, each knowing only those below: [`backend`], [`kernels`], [`tensor`],
//! [`runtime`], [`device`]. Those who write kernels start at [`kernels`].
#![warn(missing_docs)]

pub mod backend;
mod cpu;
pub mod device;
pub mod kernels;
pub mod runtime;
pub mod tensor;

/// The README's code is compiled and run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use backend::{
    TuneError, Wgsl, WgslTensor, close, fallbacks, memory, open, profile, reset_fallbacks, tune,
};
pub use device::WgslDevice;
pub use kernels::tuning::{Trial, Tuning, set_tuning};
/// This crate's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub use runtime::{KernelTime, Profile, ProfileError};
