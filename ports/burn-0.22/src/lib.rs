//! burn-wgsl for programs that use Burn 0.22.
//!
//! Burn 0.22 runs tensors on a closed list of backends. One of them, LibTorch, is a crate of its
//! own that Burn loads by name, so a `[patch]` can put another in its place. This crate is that
//! other one: its types are named as Burn expects, and each op converts its arguments and calls
//! burn-wgsl's backend, which implements the contract of Burn 0.21. README.md says how to use it,
//! what it costs and when it ends.
//!
//! - `release` is what only Burn 0.22 has. The other modules are those of all releases, in `../src`.
//! - `device` and `tensor` wrap burn-wgsl's types.
//! - `convert` converts the types that both contracts have.
//! - `ops` has a row for each method that both contracts have, and code for those that differ.
//! - `backend` is the rest of the contract; `handles` is for the remote server.

#[macro_use]
mod release;

#[path = "../../src/backend.rs"]
mod backend;
#[path = "../../src/contract.rs"]
mod contract;
#[path = "../../src/convert.rs"]
mod convert;
#[path = "../../src/device.rs"]
mod device;
#[path = "../../src/handles.rs"]
mod handles;
#[path = "../../src/ops/mod.rs"]
mod ops;
#[path = "../../src/tensor.rs"]
mod tensor;

pub use backend::Port as LibTorch;
#[doc(hidden)]
pub use contract::Convert;
pub use device::PortDevice as LibTorchDevice;
pub use tensor::{QuantizedTensor, Tensor};

// The names that are alike in the ports to all releases.
pub use backend::Port;
pub use device::PortDevice;

/// burn-wgsl, with the crate's version: for its own functions, such as `memory`, on the same
/// devices.
pub use burn_wgsl as wgsl;

/// Compiles and runs the code of the page about this port.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Page;

/// The same for the project's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
