//! Errors of selecting and opening a device.

use thiserror::Error;

use super::driver_files::driver_note;
use super::requirements::join_shortfalls;
use super::{ACCEPTED_SELECTORS, DEVICE_VARIABLE, DeviceList, Shortfall, WgslDevice};

/// Returns a sentence after a space; nothing for an empty text.
fn after_space(sentence: String) -> String {
    if sentence.is_empty() { sentence } else { format!(" {sentence}") }
}

/// An error of selecting or opening a device. The message says how to solve the problem.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The text is not a device selector.
    #[error(
        "`{text}` is not a device selector.\nDevices here:\n{available}\n\
         Use one of these selectors: {ACCEPTED_SELECTORS}. [BW05]"
    )]
    UnknownSelector {
        /// The text as given.
        text: String,
        /// The devices of this machine.
        available: DeviceList,
    },

    /// The selector is valid, but this machine has no such device.
    #[error(
        "there is no device `{device}` here.\nDevices here:\n{available}\n\
         Use one of these selectors: {ACCEPTED_SELECTORS}.{} [BW05]",
        after_space(driver_note())
    )]
    NoSuchDevice {
        /// The requested device.
        device: WgslDevice,
        /// The devices of this machine.
        available: DeviceList,
    },

    /// No adapter that has a selector has this text in its name.
    #[error(
        "`name:{name}` matches no adapter that has a selector.\nDevices here:\n{available}\n\
         Use one of these selectors: {ACCEPTED_SELECTORS}.{} [BW05]",
        after_space(driver_note())
    )]
    NoSuchName {
        /// The requested part of an adapter name, in lower case.
        name: String,
        /// The devices of this machine.
        available: DeviceList,
    },

    /// The environment variable is not a device selector, or selects a device that does not exist.
    #[error(
        "the environment variable {DEVICE_VARIABLE} is set to `{value}`, which cannot be used; \
         unset it or set it to a selector listed below: {cause}"
    )]
    Environment {
        /// The value of the variable.
        value: String,
        /// The error for this value. It is part of the message, so it is not the error's source.
        cause: Box<DeviceError>,
    },

    /// The limits of the adapter are below the requirements of the kernels.
    #[error(
        "{adapter} does not meet the requirements of the kernels ({}); update its driver or select \
         another device [BW06]",
        join_shortfalls(.shortfalls)
    )]
    BelowRequirements {
        /// The adapter's name.
        adapter: String,
        /// The limits that are too low.
        shortfalls: Vec<Shortfall>,
    },

    /// The limits of a device that the program opened are below the requirements of the kernels.
    #[error(
        "the device that the program opened on {adapter} does not meet the requirements of the kernels ({}); open it \
         with the limits of `burn_wgsl::interop::requirements` [BW06]",
        join_shortfalls(.shortfalls)
    )]
    HostBelowRequirements {
        /// The adapter's name.
        adapter: String,
        /// The limits that are too low.
        shortfalls: Vec<Shortfall>,
    },

    /// The device that the program handed in is of another adapter.
    #[error(
        "the program handed in the adapter {adapter} with a device of {device}; hand in the adapter that opened \
         the device"
    )]
    HostAdapter {
        /// The adapter's name.
        adapter: String,
        /// The name of the device's adapter.
        device: String,
    },

    /// The queue that the program handed in is not that of its device.
    #[error(
        "the queue that the program handed in with its device on {adapter} does not write to the \
         device's memory: it is that of another device, or the device was lost, or has not finished \
         the program's work in 30 s; hand in both as `request_device` returned them"
    )]
    HostQueue {
        /// The adapter's name.
        adapter: String,
    },

    /// A device of the program was lost or closed.
    #[error(
        "the program's device on {adapter} can no longer be used ({reason}); hand in a new one with \
         `burn_wgsl::interop::device` [BW10]"
    )]
    HostLost {
        /// The adapter's name.
        adapter: String,
        /// Why.
        reason: String,
    },

    /// The device is not open, and a browser can open devices only asynchronously.
    #[error(
        "{adapter} {}; a browser opens a device only in `burn_wgsl::open`: await it before using \
         the device [BW42]",
        not_open(.reason)
    )]
    NotOpen {
        /// The adapter's name.
        adapter: String,
        /// Why the device was closed or lost, if it was open before.
        reason: Option<String>,
    },

    /// The CPU was selected, explicitly or for lack of a usable GPU, in a program built without the
    /// CPU backend.
    #[error(
        "the CPU was selected, or no GPU can be used, but this program was built without the CPU \
         backend; enable the feature `cpu` of burn-wgsl; {}",
        super::install_hint()
    )]
    NoCpuBackend,

    /// The driver failed to open the adapter.
    #[error(
        "the driver failed to open {adapter} ({source}); close other programs that use it, update \
         its driver, or select another device, such as `cpu` [BW07]"
    )]
    OpenFailed {
        /// The adapter's name.
        adapter: String,
        /// The error reported by wgpu.
        source: wgpu::RequestDeviceError,
    },
}

/// Returns the predicate of the `NotOpen` message.
fn not_open(reason: &Option<String>) -> String {
    match reason {
        Some(reason) => format!("is no longer open ({reason})"),
        None => "is not open".to_owned(),
    }
}
