//! A [Burn](https://burn.dev) backend with hand-written WGSL kernels. wgpu runs them on Vulkan,
//! Metal, DX12 and WebGPU. Without a GPU, the same program runs on the CPU.
//!
//! ```
//! use burn::tensor::Tensor;
//! use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
//!
//! type B = Autodiff<Wgsl>;
//!
//! // The best GPU of this machine, otherwise the CPU; `BURN_WGSL_DEVICE` overrides the choice.
//! let device = WgslDevice::default();
//! let x = Tensor::<B, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device).require_grad();
//! let loss = (x.clone() * x.clone()).sum();
//! let grads = loss.backward();
//! let grad = x.grad(&grads).unwrap();
//! assert_eq!(grad.into_data().to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
//! ```
//!
//! - [`WgslDevice`] selects a device; [`device`] lists the devices of this machine.
//! - [`open`] opens a device asynchronously, which a browser requires; [`close`] closes it.
//! - [`autocast`](fn@autocast) computes products in 16 bits, with parameters in f32.
//! - `train` (feature `train`) has parts of a training loop: batches in a fixed order, accumulation, averages of
//!   weights, the search for a batch size. `scaler` scales losses for f16.
//! - `generate` (feature `generate`) has parts of a program that writes text: a cache of keys and values, the choice of
//!   a token.
//! - `serve` (feature `serve`) has parts of a program that answers requests: a queue that joins them, sizes of batches.
//! - [`attempt`] returns the panic of an op as an error, for a program that goes on.
//! - [`fallbacks`] counts the ops that ran on the CPU because they have no kernel.
//! - [`memory`](mod@memory) tells what is in the memory of a device: usage, peaks, limits, recordings.
//! - [`scope`] names a part of a program in recordings.
//! - [`debug`](mod@debug) finds the op that fails, or whose result is NaN.
//! - [`profiler`] measures the GPU time of each kernel, and writes traces.
//! - [`share_status`] lets `burn-wgsl top` show what a process does.
//! - [`interop`] computes on a wgpu device of the program, in its buffers, for its textures.
//! - [`custom`] runs WGSL kernels of your own on Burn's tensors, with gradients.
//! - [`tune`] finds the fastest strategy for matrix products on a device.
//!
//! `docs/README.md` in the repository lists pages about the use of this API. `ARCHITECTURE.md`
//! describes the layers below it. The feature `internals` makes them public for tests and tools;
//! they are not stable.
#![warn(missing_docs)]
// On docs.rs, items name the feature that they need.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Messages go to the log.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod custom;
pub mod device;
pub mod interop;
pub mod memory;
mod pages;
pub mod profiler;
mod timing;

// The layers below the API are public only with the feature `internals`.
#[cfg(feature = "internals")]
pub mod autocast;
#[cfg(feature = "internals")]
#[cfg_attr(not(feature = "cpu"), allow(unused_imports, reason = "the CPU backend uses the rest"))]
pub mod backend;
#[cfg(feature = "internals")]
pub mod kernels;
#[cfg(feature = "internals")]
pub mod runtime;
#[cfg(feature = "internals")]
pub mod tensor;

#[cfg(not(feature = "internals"))]
mod autocast;
#[cfg(not(feature = "internals"))]
#[allow(unused_imports, reason = "only `call` and `coverage` import the tables")]
mod backend;
#[cfg(not(feature = "internals"))]
#[allow(dead_code, reason = "only tests and tools use the lists of variants and cases")]
mod kernels;
#[cfg(not(feature = "internals"))]
#[allow(dead_code, unused_imports, reason = "only tests and tools use some of the runtime")]
mod runtime;
#[cfg(not(feature = "internals"))]
mod tensor;

#[cfg(feature = "autodiff")]
mod autodiff;
mod cpu;
#[cfg(feature = "generate")]
pub mod generate;
#[cfg(feature = "train")]
pub mod parallel;
#[cfg(feature = "scaler")]
pub mod scaler;
#[cfg(feature = "serve")]
pub mod serve;
#[cfg(feature = "train")]
pub mod train;
mod variables;
#[cfg(feature = "vision")]
mod vision;

/// Compiles and runs the code of the pages in `docs/` with the other doc tests. That of the README is for Burn 0.22:
/// the port tests it.
#[cfg(doctest)]
mod docs {
    #[cfg(feature = "autodiff")]
    #[doc = include_str!("../docs/burn.md")]
    struct Burn;
    #[cfg(feature = "autodiff")]
    #[doc = include_str!("../docs/data-types.md")]
    struct DataTypes;
    #[cfg(feature = "autodiff")]
    #[doc = include_str!("../docs/debugging.md")]
    struct Debugging;
    #[doc = include_str!("../docs/devices.md")]
    struct Devices;
    #[doc = include_str!("../docs/exercises.md")]
    struct Exercises;
    #[cfg(feature = "autodiff")]
    #[doc = include_str!("../docs/how-to.md")]
    struct HowTo;
    #[doc = include_str!("../docs/import.md")]
    struct Import;
    #[cfg(feature = "autodiff")]
    #[doc = include_str!("../docs/kernels.md")]
    struct Kernels;
    #[doc = include_str!("../docs/limits.md")]
    struct Limits;
    #[doc = include_str!("../docs/memory.md")]
    struct Memory;
    #[cfg(feature = "train")]
    #[doc = include_str!("../docs/mixed-precision.md")]
    struct MixedPrecision;
    #[cfg(feature = "train")]
    #[doc = include_str!("../docs/parallel.md")]
    struct Parallel;
    #[doc = include_str!("../docs/profiling.md")]
    struct Profiling;
    #[doc = include_str!("../docs/reproducibility.md")]
    struct Reproducibility;
    #[cfg(feature = "serve")]
    #[doc = include_str!("../docs/serving.md")]
    struct Serving;
    #[cfg(feature = "generate")]
    #[doc = include_str!("../docs/text.md")]
    struct Text;
    #[cfg(feature = "autodiff")]
    #[doc = include_str!("../docs/threads-and-gradients.md")]
    struct ThreadsAndGradients;
    #[cfg(feature = "train")]
    #[doc = include_str!("../docs/training.md")]
    struct Training;
    #[cfg(feature = "autodiff")]
    #[doc = include_str!("../docs/web.md")]
    struct Web;
}

pub use autocast::{
    MatmulPrecision, Precision, PrecisionScope, ProductPath, UnknownPrecision, autocast,
    current_precision, matmul_precision, product_path,
};
#[cfg(feature = "autodiff")]
pub use autodiff::Autodiff;
pub use backend::debug;
pub use backend::{
    RandomState, TuneError, Wgsl, WgslQuantizedTensor, WgslTensor, close, compute, fallbacks, open,
    random_state, reset_fallbacks, set_random_state, skip_warm_up, tune,
};
pub use device::WgslDevice;
pub use kernels::fusion::set_fusion;
pub use kernels::gemm::tuning::{Trial, Tuning, set_tuning};
pub use profiler::{KernelTime, Profile, ProfileError, profile};
pub use runtime::{
    OpPanic, RuntimeError, Scope, SharedStatus, attempt, scope, share_status, waits_on_thread,
};
pub use tensor::Error as TensorError;
pub use timing::{Summary, Timing, time};

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
