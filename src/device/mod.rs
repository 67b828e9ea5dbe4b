//! Discovers, ranks, selects and opens GPUs.
//!
//! A [`WgslDevice`] selects where tensors are stored and ops run. Its text form is a device
//! selector: `auto`, `gpu:1`, `software`, `cpu`. [`WgslDevice::resolve`] returns the CPU or the
//! index of an adapter in [`adapters`]; [`burn_wgsl::open`](crate::open) opens it. Ranking and
//! selection depend only on [`AdapterInfo`]. It is plain data, so their tests need no GPU.
//!
//! The environment variable [`DEVICE_VARIABLE`] sets the device that `auto` selects. If `auto`
//! becomes the CPU because there is no usable GPU, one message on standard error says so
//! ([`set_quiet`] suppresses it). In a browser there are no environment variables, and adapters are
//! found only asynchronously: [`adapters`] is empty before [`discover`] completes.

mod adapters;
mod default;
mod driver_files;
mod error;
mod hosts;
mod info;
mod install_hint;
mod list;
mod machine;
mod open;
mod ranking;
mod requirements;
mod resolve;
mod selector;
mod units;
mod vulkan;

/// Whether the host can block until the GPU has finished. False only in a browser.
pub const CAN_BLOCK: bool = !cfg!(target_arch = "wasm32");

pub use adapters::{Adapter, adapters, discover};
pub use default::DeviceOnThread;
pub use error::DeviceError;
pub use info::{AdapterInfo, AdapterKind, Api, Features, Limits};
pub use install_hint::install_hint;
pub use list::{DeviceList, ListedDevice, selectors};
pub use machine::{
    QUIET_VARIABLE, automatic, automatic_devices, set_default, set_quiet, use_on_thread,
};
pub use ranking::Choice;
pub use requirements::Shortfall;
pub use resolve::{Automatic, ResolvedDevice};
pub use selector::{ACCEPTED_SELECTORS, DEVICE_VARIABLE, WgslDevice};
pub use units::{MatrixUnit, Units};

/// What the runtime and tools use besides the public API.
#[cfg(not(feature = "internals"))]
pub(crate) use internals::*;
#[cfg(feature = "internals")]
pub use internals::*;

#[allow(unused_imports, reason = "tools use more than the crate")]
mod internals {
    pub use super::adapters::enumerate;
    pub use super::hosts::{FIRST_HOST, add_host, host_requirements, info_of, take_host};
    pub use super::info::IMMEDIATE_BYTES;
    #[cfg(feature = "train")]
    pub use super::machine::on_thread;
    pub use super::open::{OpenDevice, open};
    pub use super::ranking::{choose, rank};
}
