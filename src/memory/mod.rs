//! What is in the memory of a device: how much is used, by what, and what grew.
//!
//! - [`usage`] and [`report`] tell how much memory is in use and reserved; a report is displayed as
//!   a table.
//! - [`measure`] returns the peak and the net change of a piece of work; measurements nest.
//! - [`record`] keeps the history of all allocations, each with its op and its [`scope`]. A
//!   [`Snapshot`] is the history so far; it can be written as an HTML page with a chart, or as
//!   JSON. [`Recording::growth`] tells what grew between two points.
//! - [`trim`] returns unused memory to the driver, [`set_limit`] limits what is reserved.
//!
//! ```
//! use burn::tensor::Tensor;
//! use burn_wgsl::{Wgsl, WgslDevice, memory};
//!
//! let device = WgslDevice::default();
//! let (y, measured) = memory::measure(&device, || {
//!     let x = Tensor::<Wgsl, 2>::ones([64, 64], &device);
//!     x.clone().matmul(x)
//! })?;
//! println!("{measured}"); // on a GPU: peak 32 KiB, net change 16 KiB
//! println!("{}", memory::report(&device)?);
//! # drop(y);
//! # Ok::<(), memory::MemoryError>(())
//! ```
//!
//! Memory belongs to a tensor from the moment its kernel is recorded. The result of an elementwise
//! op has none until it is needed, and no more than that if another kernel computes it on the way.
//! Dropped memory is reused at once, and kept: `in use` falls when a tensor is dropped, `reserved`
//! only when memory is returned to the driver.
//!
//! An op that overwrites an operand in place allocates nothing: the memory stays with the op that
//! allocated it.
//!
//! The memory of the CPU device is not counted: its usage is zero. A recording of it lists the results of ops and what
//! is uploaded, from its beginning on; neither the memory that an op needs meanwhile nor quantised tensors.

mod recording;
mod report;
pub(crate) mod waiting;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::device::{DeviceError, ResolvedDevice, WgslDevice};
use crate::runtime::{Bytes, ObservedDevice, PeakId, Runtime, RuntimeError};

pub use crate::runtime::{MemoryReport, MemoryUsage, SizeRange};
pub use recording::{Growth, Holder, Mark, MemoryEvent, Recording, Snapshot};

#[cfg(doc)]
use crate::scope;

/// An error of the functions of this module.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// There is no such device, or it cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device failed while pending results were computed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The CPU device has no memory of its own, and cannot be limited.
    #[error(
        "tensors on the CPU device are in the host's memory, which is not limited; choose a GPU or `software`"
    )]
    Cpu,
    /// The size of the device's memory is not known.
    #[error("{device} does not tell how much memory it has; set a limit in bytes")]
    UnknownSize {
        /// The adapter's name.
        device: String,
    },
    /// A fraction is not between 0 and 1.
    #[error("a fraction of the memory must be between 0 and 1, not {0}")]
    InvalidFraction(f64),
    /// A recording has no such mark.
    #[error("the recording has no mark {name:?}; it has {marks}")]
    UnknownMark {
        /// The name.
        name: String,
        /// The names of its marks.
        marks: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// A limit on the memory that a device reserves for tensors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// At most this many bytes.
    Bytes(u64),
    /// At most this part of the device's memory, between 0 and 1. Only Vulkan tells how much memory
    /// a device has.
    Fraction(f64),
}

/// The memory that a piece of work needed: the result of [`measure`]. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measured {
    /// The maximum of the memory in use meanwhile, beyond what was in use before.
    pub peak: u64,
    /// The memory in use afterwards, less what was in use before.
    pub change: i64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.change < 0 { "-" } else { "" };
        let change = Bytes(self.change.unsigned_abs());
        write!(f, "peak {}, net change {sign}{change}", Bytes(self.peak))
    }
}

/// Returns the runtime of a device, opened if it was not; `None` for the CPU.
fn runtime_of(device: &WgslDevice) -> Result<Option<Arc<Runtime>>, DeviceError> {
    match device.resolve()? {
        ResolvedDevice::Cpu => Ok(None),
        ResolvedDevice::Adapter(index) => Runtime::of(index).map(Some),
    }
}

/// Returns the runtime of a device if it is open.
fn opened(device: &WgslDevice) -> Result<Option<Arc<Runtime>>, DeviceError> {
    match device.resolve()? {
        ResolvedDevice::Cpu => Ok(None),
        ResolvedDevice::Adapter(index) => Ok(Runtime::opened(index)),
    }
}

/// Returns how much memory of a device is in use and reserved, and the peak. All is zero for the
/// CPU, and for a device that was not opened.
///
/// ```
/// use burn_wgsl::{WgslDevice, memory};
///
/// let usage = memory::usage(&WgslDevice::default())?;
/// println!("{} bytes in use, {} reserved", usage.in_use, usage.reserved);
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn usage(device: &WgslDevice) -> Result<MemoryUsage, DeviceError> {
    Ok(opened(device)?.map_or_else(MemoryUsage::default, |runtime| runtime.memory()))
}

/// Returns how the memory of a device is used, for people: its `Display` is a table.
///
/// ```
/// use burn_wgsl::{WgslDevice, memory};
///
/// println!("{}", memory::report(&WgslDevice::default())?);
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device, or it cannot be opened.
pub fn report(device: &WgslDevice) -> Result<MemoryReport, DeviceError> {
    let report = match runtime_of(device)? {
        Some(runtime) => runtime.memory_report(),
        None => {
            MemoryReport { device: device.to_string(), of_host: true, ..MemoryReport::default() }
        }
    };
    Ok(MemoryReport { waiting_nodes: waiting::count(), ..report })
}

/// Resets the peak of [`usage`] to the memory in use now. Does nothing for the CPU.
///
/// ```no_run
/// use burn_wgsl::{WgslDevice, memory};
///
/// let device = WgslDevice::default();
/// memory::reset_peak(&device)?;
/// // ... an epoch
/// println!("peak of the epoch: {} bytes", memory::usage(&device)?.peak);
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn reset_peak(device: &WgslDevice) -> Result<(), DeviceError> {
    if let Some(runtime) = opened(device)? {
        runtime.reset_memory_peak();
    }
    Ok(())
}

/// Returns unused memory to the driver, the longest unused first, until at most `target` bytes are
/// reserved. Does nothing for the CPU.
///
/// ```no_run
/// use burn_wgsl::{WgslDevice, memory};
///
/// memory::trim(&WgslDevice::default(), 0)?; // all that no tensor uses
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn trim(device: &WgslDevice, target: u64) -> Result<(), DeviceError> {
    if let Some(runtime) = opened(device)? {
        runtime.trim(target);
    }
    Ok(())
}

/// Limits the memory that a device reserves for tensors, or removes the limit.
///
/// An op that needs more first waits for the device and returns unused memory to the driver; if
/// that is not enough, it fails like one that runs out of memory. Memory that is reserved already
/// stays. Small tensors share pages of 4 MiB.
///
/// ```no_run
/// use burn_wgsl::{WgslDevice, memory};
///
/// let device = WgslDevice::Gpu(0);
/// memory::set_limit(&device, Some(memory::Limit::Bytes(4 << 30)))?;
/// memory::set_limit(&device, Some(memory::Limit::Fraction(0.5)))?; // of the GPU's memory
/// # Ok::<(), memory::MemoryError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device, it cannot be opened, it is the CPU and there is a limit, a fraction
/// is not between 0 and 1, or one is given and the size of the device's memory is not known.
pub fn set_limit(device: &WgslDevice, limit: Option<Limit>) -> Result<(), MemoryError> {
    let Some(runtime) = runtime_of(device)? else {
        return if limit.is_some() { Err(MemoryError::Cpu) } else { Ok(()) };
    };
    let bytes = match limit {
        None => None,
        Some(Limit::Bytes(bytes)) => Some(bytes),
        Some(Limit::Fraction(fraction)) if !(0.0..=1.0).contains(&fraction) => {
            return Err(MemoryError::InvalidFraction(fraction));
        }
        Some(Limit::Fraction(fraction)) => {
            let device = || runtime.name();
            let size = runtime.info().memory;
            let size = size.ok_or_else(|| MemoryError::UnknownSize { device: device() })?;
            Some((size as f64 * fraction) as u64)
        }
    };
    runtime.set_memory_limit(bytes);
    Ok(())
}

/// Runs `work` and measures the memory of a device that it needs. Measurements may nest and
/// overlap. Work of other threads counts too. Pending results are computed before and after.
/// Everything is zero for the CPU.
///
/// ```no_run
/// use burn::tensor::Tensor;
/// use burn_wgsl::{Wgsl, WgslDevice, memory};
///
/// let device = WgslDevice::default();
/// let (kept, measured) = memory::measure(&device, || Tensor::<Wgsl, 1>::ones([1 << 20], &device).exp())?;
/// println!("{measured}"); // peak 4 MiB, net change 4 MiB
/// # drop(kept);
/// # Ok::<(), memory::MemoryError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device, it cannot be opened, or the computation of pending
/// results fails.
pub fn measure<R>(
    device: &WgslDevice,
    work: impl FnOnce() -> R,
) -> Result<(R, Measured), MemoryError> {
    let Some(runtime) = runtime_of(device)? else {
        return Ok((work(), Measured { peak: 0, change: 0 }));
    };
    runtime.record_deferred()?;
    let before = runtime.memory().in_use;
    let peak = Peak::begin(&runtime);
    let result = work();
    runtime.record_deferred()?;
    let peak = peak.end();
    let change = runtime.memory().in_use.cast_signed() - before.cast_signed();
    Ok((result, Measured { peak: peak.saturating_sub(before), change }))
}

/// A peak that is being measured, until it is dropped.
struct Peak<'a> {
    runtime: &'a Runtime,
    id: Option<PeakId>,
}

impl<'a> Peak<'a> {
    fn begin(runtime: &'a Runtime) -> Self {
        Self { runtime, id: Some(runtime.begin_peak()) }
    }

    fn end(mut self) -> u64 {
        self.id.take().map_or(0, |id| self.runtime.end_peak(id))
    }
}

impl Drop for Peak<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.runtime.end_peak(id);
        }
    }
}

/// Begins to record the memory of a device: each allocation and release from now on, with its op
/// and its [`scope`], until the recording is dropped.
///
/// A recording costs about 0.1 us for each allocation and release, and 24 bytes of host memory; it
/// keeps the last million of them, and 4096 marks. Each op and scope is kept too, so scopes should
/// have few different names. Pending results are computed where a scope begins or ends, so that
/// other ops may be computed together than without a recording.
///
/// ```no_run
/// use burn::tensor::Tensor;
/// use burn_wgsl::{Wgsl, WgslDevice, memory};
///
/// let device = WgslDevice::default();
/// let recording = memory::record(&device)?;
/// let mut kept = Vec::new();
/// for step in 0..3 {
///     kept.push(Tensor::<Wgsl, 1>::ones([1000], &device).exp()); // a leak
///     recording.mark(format!("step {step}"))?;
/// }
/// for growth in recording.growth("step 1", "step 2")? {
///     println!("{growth}"); // +4 KiB, +1 tensors: float_exp
/// }
/// # Ok::<(), memory::MemoryError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device, it cannot be opened, or the computation of pending results fails.
pub fn record(device: &WgslDevice) -> Result<Recording, MemoryError> {
    let device = ObservedDevice::of(device)?;
    // Results that are pending now are not part of the recording.
    device.record_deferred()?;
    Ok(Recording::begin(device))
}
