//! Finding, ranking, naming and opening GPUs.
//!
//! A [`WgslDevice`] is a short word for where tensors live: `auto`, `gpu:1`, `software`, `cpu`.
//! [`WgslDevice::resolve`] turns the word into an adapter of [`adapters`], or into the CPU; [`open`]
//! opens that adapter. All that is decided here is decided on [`AdapterInfo`], plain data that a
//! test can invent, so no GPU is needed to check the choices.
//!
//! The environment variable [`DEVICE_VARIABLE`] says what `auto` means. A browser has no environment, and tells its adapter
//! only to those who await: before [`look`] there is none.

mod adapters;
mod error;
mod info;
mod install_hint;
mod list;
mod machine;
mod open;
mod ranking;
mod requirements;
mod resolve;
mod selector;

/// Whether the host can wait for a GPU: everywhere but in a browser.
pub const CAN_BLOCK: bool = !cfg!(target_arch = "wasm32");

pub use adapters::{Adapter, adapters, discover, enumerate};
pub use error::DeviceError;
pub use info::{AdapterInfo, AdapterKind, Api, Features, IMMEDIATE_BYTES, Limits};
pub use install_hint::install_hint;
pub use list::{DeviceList, ListedDevice, selectors};
pub use machine::automatic;
pub use open::{OpenDevice, open};
pub use ranking::{Choice, choose, rank};
pub use requirements::Shortfall;
pub use resolve::{Automatic, DEVICE_VARIABLE, ResolvedDevice};
pub use selector::{ACCEPTED_SELECTORS, WgslDevice};
