//! What can go wrong between a kernel launch and the GPU.

use thiserror::Error;

/// An error of an opened device. Sizes are in bytes.
#[derive(Debug, Clone, Error)]
pub enum RuntimeError {
    /// A browser never waits.
    #[error(
        "nothing in a browser can wait for {device}; await the data of a tensor instead (into_data_async)"
    )]
    CannotBlock {
        /// The adapter's name.
        device: String,
    },
    /// The device could not give the memory, also after everything unused was returned to it.
    #[error(
        "out of memory on {device}: {asked} bytes were asked for while {in_use} are in use and \
         {reserved} reserved; use a smaller batch or model, drop tensors that are no longer \
         needed, or choose another device"
    )]
    OutOfMemory {
        /// The adapter's name.
        device: String,
        /// The size that was asked for.
        asked: u64,
        /// The bytes held by living tensors.
        in_use: u64,
        /// The bytes held by the pool, in use or kept for reuse.
        reserved: u64,
    },
    /// A browser told only later that the device could not give the memory.
    #[error(
        "out of memory on {device}, with {in_use} bytes in use; what it has computed since is not to be trusted: use a \
         smaller batch or model, and open the device again"
    )]
    Exhausted {
        /// The adapter's name.
        device: String,
        /// The bytes held by living tensors.
        in_use: u64,
    },
    /// A single tensor exceeds what one binding of the device can address.
    #[error(
        "a tensor of {asked} bytes exceeds the {limit} bytes that {device} can bind at once; \
         split the tensor or use a smaller batch"
    )]
    TooLarge {
        /// The adapter's name.
        device: String,
        /// The size that was asked for.
        asked: u64,
        /// The device's limit.
        limit: u64,
    },
    /// The driver took the device away (reset, unplugged, or destroyed).
    #[error(
        "the device {device} was lost ({reason}); tensors on it are gone, but the device can be \
         opened again by creating new tensors on it"
    )]
    DeviceLost {
        /// The adapter's name.
        device: String,
        /// What the driver said.
        reason: String,
    },
    /// The driver refused something that was recorded.
    #[error(
        "{device} refused a command ({message}); what it has computed since is not to be trusted; this is a \
         mistake in this crate or the driver: please report it with the output of `burn-wgsl devices`"
    )]
    Failed {
        /// The adapter's name.
        device: String,
        /// The driver's words.
        message: String,
    },
    /// A shader was refused by the compiler or the driver.
    #[error(
        "the kernel {kernel} does not compile on this device: {message}; please report it with \
         the output of `burn-wgsl devices`"
    )]
    Shader {
        /// The kernel's name and definitions.
        kernel: String,
        /// The compiler's words.
        message: String,
    },
    /// A readback did not complete.
    #[error("reading data back from {device} failed: {message}")]
    Readback {
        /// The adapter's name.
        device: String,
        /// The driver's words.
        message: String,
    },
}
