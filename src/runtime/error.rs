//! Errors of an opened device.

use thiserror::Error;

use super::Bytes;
use crate::device::DeviceError;

fn at_most(limit: Option<u64>) -> String {
    limit.map_or_else(String::new, |limit| format!(" of at most {}", Bytes(limit)))
}

fn held(holders: Option<&str>) -> String {
    match holders {
        Some(holders) => format!("most of it is held by {holders}"),
        None => "a recording of the memory would list what holds it".to_owned(),
    }
}

/// An error of an opened device. Sizes are in bytes.
#[derive(Debug, Clone, Error)]
pub enum RuntimeError {
    /// The device cannot be selected or opened.
    #[error(transparent)]
    Device(Box<DeviceError>),
    /// The host cannot block in a browser.
    #[error(
        "a browser cannot block until {device} has finished; await the data of a tensor instead \
         (into_data_async) [BW42]"
    )]
    CannotBlock {
        /// The adapter's name.
        device: String,
    },
    /// The device is out of memory, even after all unused buffers were destroyed.
    #[error(
        "out of memory on {device}: {} were requested, {} are in use and {} are reserved{}; {}; \
         use a smaller batch or model, drop tensors that are no longer needed, or choose another \
         device [BW11]",
        Bytes(*requested),
        Bytes(*in_use),
        Bytes(*reserved),
        at_most(*limit),
        held(holders.as_deref())
    )]
    OutOfMemory {
        /// The adapter's name.
        device: String,
        /// The requested size.
        requested: u64,
        /// Size of the live allocations.
        in_use: u64,
        /// Size of the pool's buffers, in use or kept for reuse.
        reserved: u64,
        /// The maximum of `reserved`, if the program has set one.
        limit: Option<u64>,
        /// What holds most memory, if memory is being recorded.
        holders: Option<String>,
    },
    /// An earlier allocation ran out of memory. Browsers report this only after the allocation.
    #[error(
        "out of memory on {device}; results computed since then are lost; use a smaller batch or \
         model [BW11]"
    )]
    Exhausted {
        /// The adapter's name.
        device: String,
    },
    /// A tensor exceeds the largest buffer of the device.
    #[error(
        "a tensor of {requested} bytes exceeds the {limit} bytes of the largest buffer on {device}; \
         split the tensor or use a smaller batch [BW14]"
    )]
    TooLarge {
        /// The adapter's name.
        device: String,
        /// The requested size.
        requested: u64,
        /// The largest buffer of the device.
        limit: u64,
    },
    /// A kernel cannot read or write a tensor in parts, and the tensor exceeds the largest binding
    /// of the device.
    #[error(
        "a tensor of {requested} bytes exceeds the {limit} bytes that {device} can bind at once; only \
         elementwise ops, creation, random numbers, copies, reductions and matrix products accept \
         larger tensors: split the tensor along an axis for this op, or use a smaller batch [BW15]"
    )]
    TooLargeToBind {
        /// The adapter's name.
        device: String,
        /// The size of the tensor.
        requested: u64,
        /// The largest binding of the device.
        limit: u64,
    },
    /// The device was lost: reset, unplugged or destroyed.
    #[error(
        "the device {device} was lost ({reason}); its tensors are no longer valid; the device can \
         be opened again by creating new tensors on it, or, if it is the program's own, by handing in another [BW10]"
    )]
    DeviceLost {
        /// The adapter's name.
        device: String,
        /// Why the device was lost.
        reason: String,
    },
    /// The driver rejected a recorded command.
    #[error(
        "{device} rejected a command ({message}); the results of the commands submitted with it \
         are lost; unless a buffer of the program was destroyed or mapped, this is a bug in this crate or in the \
         driver: please report it with the report of `burn-wgsl doctor` [BW40]"
    )]
    Failed {
        /// The adapter's name.
        device: String,
        /// The driver's message.
        message: String,
    },
    /// The device finishes nothing any more.
    #[error(
        "{device} has made no progress for {seconds:.0} s; it is running {running}: the driver or the kernel \
         hangs, or the \
         launch is larger than the device can finish in that time; use a smaller batch, update the driver, or wait \
         longer with BURN_WGSL_TIMEOUT=SECONDS (0: for ever) [BW36]"
    )]
    Stalled {
        /// The adapter's name.
        device: String,
        /// How long nothing has finished.
        seconds: f64,
        /// The kernel that runs, or that of the largest launch of the submission.
        running: String,
    },
    /// wgpu refused a buffer, a texture or a queue of the program.
    #[error(
        "{device} cannot use an object of the program, which must be of the same wgpu device and must be \
         neither destroyed \
         nor mapped: {message}"
    )]
    Foreign {
        /// The adapter's name.
        device: String,
        /// wgpu's message.
        message: String,
    },
    /// The contents of a tensor are lost, because the commands that computed them failed.
    #[error(
        "the contents of a tensor are lost, because {device} failed to compute them; create the \
         tensor again, for example from a checkpoint [BW10]"
    )]
    LostResults {
        /// The adapter's name.
        device: String,
    },
    /// The memory of a tensor is a buffer that the program lent, and has taken back.
    #[error(
        "the tensor is in a buffer of the program whose guard was dropped; keep the guard while tensors in it \
         are used, \
         or copy them before"
    )]
    TakenBack,
    /// An index of an op was outside its axis. It is reported with the first readback after the op.
    /// The op read the nearest element instead, and wrote none.
    #[error(
        "{op}: index {index} is out of range for axis {axis} of size {size} (on {device}, which \
         reports this when results are read; with BURN_WGSL_CHECKED=1 the op itself fails; \
         BURN_WGSL_INDEX_REPORTS=0 switches these reports off) [BW31]"
    )]
    IndexOutOfRange {
        /// The adapter's name.
        device: String,
        /// The op.
        op: &'static str,
        /// The index. Of several, the negative one nearest to zero, else the largest. Negative
        /// 64-bit indices are reported as -1.
        index: i32,
        /// The axis.
        axis: usize,
        /// The size of the axis.
        size: usize,
    },
    /// The host is out of memory.
    #[error("the host has no memory for {requested} bytes that are read back")]
    HostOutOfMemory {
        /// The requested size.
        requested: u64,
    },
    /// The compiler or the driver rejected a shader.
    #[error(
        "the kernel {kernel} does not compile on this device: {message}; please report it with the \
         report of `burn-wgsl doctor` [BW40]"
    )]
    Shader {
        /// The kernel's name and definitions.
        kernel: String,
        /// The message of the compiler or the driver.
        message: String,
    },
    /// A kernel of the program does not compile.
    #[error(
        "{location}: the kernel {kernel} does not compile\n{message}\nIts text with all fragments:\n{text}"
    )]
    Wgsl {
        /// The kernel's name and definitions.
        kernel: String,
        /// The file and the line.
        location: String,
        /// The compiler's message, with lines of `text`.
        message: String,
        /// The text that the compiler was given, with line numbers.
        text: String,
    },
    /// An upload or a readback failed.
    #[error("a transfer between the host and {device} failed: {message}")]
    Transfer {
        /// The adapter's name.
        device: String,
        /// The driver's message.
        message: String,
    },
}

impl From<DeviceError> for RuntimeError {
    fn from(error: DeviceError) -> Self {
        Self::Device(Box::new(error))
    }
}
