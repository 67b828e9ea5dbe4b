//! Finding, ranking, naming and opening GPUs.
//!
//! A [`WgslDevice`] is a short word for where tensors live: `auto`, `gpu:1`, `software`, `cpu`.
//! [`WgslDevice::place`] turns the word into an adapter of [`adapters`], or into the CPU; [`open`]
//! opens that adapter. All that is decided here is decided on [`AdapterFacts`], plain data that a
//! test can invent, so no GPU is needed to check the choices.
//!
//! The environment variable [`DEVICE_VARIABLE`] says what `auto` means.

mod adapters;
mod advice;
mod error;
mod facts;
mod list;
mod needs;
mod open;
#[cfg(not(target_arch = "wasm32"))]
mod place;
mod ranking;
#[cfg_attr(target_arch = "wasm32", allow(dead_code, reason = "a browser tells its adapters only to those who await"))]
mod resolve;
mod word;

#[cfg(not(target_arch = "wasm32"))]
pub use adapters::adapters;
pub use adapters::{Found, enumerate};
pub use advice::advice;
pub use error::DeviceError;
pub use facts::{AdapterFacts, AdapterKind, Api, Features, IMMEDIATE_BYTES, Limits};
pub use list::{DeviceList, ListedDevice, words};
pub use needs::Shortfall;
pub use open::{Opened, open};
#[cfg(not(target_arch = "wasm32"))]
pub use place::automatic;
pub use ranking::{Choice, choose, rank};
pub use resolve::{Automatic, DEVICE_VARIABLE, Place};
pub use word::{ACCEPTED_WORDS, WgslDevice};
