//! burn-wgsl for programs that use Burn 0.23.
//!
//! Burn 0.23 runs tensors on a closed list of backends. One of them, Flex, is Burn's CPU backend,
//! in a crate of its own that Burn loads by name, so a `[patch]` can put another in its place. This
//! crate is that other one: its types are named as Burn expects, and each op converts its arguments
//! and calls burn-wgsl's backend, which implements the contract of Burn 0.21. README.md says how to
//! use it, what it costs and when it ends.
//!
//! - `release` is what only Burn 0.23 has. `attention`, `average`, `booleans`, `interpolation`,
//!   `packed`, `remainder` and `volumes` are its ops that Burn 0.21 does not have, or has otherwise.
//! - The other modules are those of all releases, in `../src`.

#[macro_use]
mod release;

mod attention;
mod average;
#[path = "../../src/backend.rs"]
mod backend;
mod booleans;
#[path = "../../src/contract.rs"]
mod contract;
#[path = "../../src/convert.rs"]
mod convert;
#[path = "../../src/device.rs"]
mod device;
#[path = "../../src/handles.rs"]
mod handles;
mod interpolation;
#[path = "../../src/ops/mod.rs"]
mod ops;
mod packed;
mod remainder;
#[path = "../../src/tensor.rs"]
mod tensor;
mod volumes;

pub use backend::Port as Flex;
#[doc(hidden)]
pub use contract::Convert;
pub use device::PortDevice;
pub use release::FlexDevice;
pub use tensor::{QuantizedTensor as FlexQTensor, Tensor as FlexTensor};

// The names that are alike in the ports to all releases.
pub use backend::Port;
pub use tensor::Tensor;

/// burn-wgsl, with the crate's version: for its own functions, such as `memory`, on the same
/// devices.
pub use burn_wgsl as wgsl;

/// Compiles and runs the code of the page about this port.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Page;
