//! What can go wrong between a device's word and an open device.

use thiserror::Error;

use super::requirements::joined;
use super::{ACCEPTED_SELECTORS, DEVICE_VARIABLE, DeviceList, Shortfall, WgslDevice};

/// Why a device cannot be used. Its text says what to do instead.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The text is not a word for a device.
    #[error(
        "`{text}` is not a word for a device.\nDevices here:\n{here}\nWords accepted: {ACCEPTED_SELECTORS}."
    )]
    UnknownSelector {
        /// The text as given.
        text: String,
        /// What is there.
        here: DeviceList,
    },

    /// The device is none of those that are there.
    #[error(
        "there is no device `{device}` here.\nDevices here:\n{here}\nWords accepted: {ACCEPTED_SELECTORS}."
    )]
    NotThere {
        /// The device asked for.
        device: WgslDevice,
        /// What is there.
        here: DeviceList,
    },

    /// No adapter has a name like that.
    #[error(
        "no adapter here has `{name}` in its name.\nDevices here:\n{here}\nWords accepted: {ACCEPTED_SELECTORS}."
    )]
    NoSuchName {
        /// The part of a name asked for.
        name: String,
        /// What is there.
        here: DeviceList,
    },

    /// The environment variable asks for something that cannot be had.
    #[error(
        "the environment variable {DEVICE_VARIABLE} is set to `{value}`; unset it, or set it to one \
         of the words below: {cause}"
    )]
    Environment {
        /// What it is set to.
        value: String,
        /// What is wrong with that. Part of this error's text, hence not its source.
        cause: Box<DeviceError>,
    },

    /// The adapter is there, but its limits are below what the kernels count on.
    #[error(
        "{adapter} cannot be used ({}); update its driver, or choose another device",
        joined(.shortfalls)
    )]
    Lacking {
        /// The adapter's name.
        adapter: String,
        /// The limits that are too low.
        shortfalls: Vec<Shortfall>,
    },

    /// A browser opens devices only for those who await.
    #[error("{adapter} is not open{}; await burn_wgsl::open for its device first", because(.reason))]
    NotOpen {
        /// The adapter's name.
        adapter: String,
        /// What became of it if it was open before.
        reason: Option<String>,
    },

    /// The CPU was asked for, or is all there is, in a program that was built without it.
    #[error(
        "there is no GPU to use, and this program was built without the CPU device (feature `twin`); {}",
        super::install_hint()
    )]
    NoCpu,

    /// The driver refused to open the adapter.
    #[error(
        "the driver refused to open {adapter} ({source}); close other programs that use it, update \
         its driver, or choose another device (`cpu` always works)"
    )]
    Refused {
        /// The adapter's name.
        adapter: String,
        /// What the driver said.
        source: wgpu::RequestDeviceError,
    },
}

fn because(reason: &Option<String>) -> String {
    reason.as_ref().map_or_else(String::new, |reason| format!(" any more ({reason})"))
}
