//! Finding, ranking, naming and opening GPUs.
//!
//! A [`WgslDevice`] is a short word for where tensors live: `auto`, `gpu:1`, `software`, `cpu`.
//! [`WgslDevice::place`] turns the word into an adapter of [`adapters`], or into the CPU; [`open`]
//! opens that adapter. All that is decided here is decided on [`AdapterFacts`], plain data that a
//! test can invent, so no GPU is needed to check the choices.
//!
//! The environment variable [`DEVICE_VARIABLE`] says what `auto` means. A browser has no environment, and tells its adapter
//! only to those who await: before [`look`] there is none.

mod adapters;
mod advice;
mod error;
mod facts;
mod list;
mod needs;
mod open;
mod place;
mod ranking;
mod resolve;
mod word;

/// Whether the host can wait for a GPU: everywhere but in a browser.
pub const CAN_WAIT: bool = !cfg!(target_arch = "wasm32");

pub use adapters::{Found, adapters, enumerate, look};
pub use advice::advice;
pub use error::DeviceError;
pub use facts::{AdapterFacts, AdapterKind, Api, Features, IMMEDIATE_BYTES, Limits};
pub use list::{DeviceList, ListedDevice, words};
pub use needs::Shortfall;
pub use open::{Opened, open};
pub use place::automatic;
pub use ranking::{Choice, choose, rank};
pub use resolve::{Automatic, DEVICE_VARIABLE, Place};
pub use word::{ACCEPTED_WORDS, WgslDevice};
