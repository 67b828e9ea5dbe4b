//! Where the time goes: when each kernel ran on the GPU, for which ops and in which [`scope`], and
//! what the host did meanwhile. On the CPU device, an op takes the place of a kernel, and wall time that of GPU time.
//!
//! ```
//! use burn::tensor::{Distribution, Tensor};
//! use burn_wgsl::profiler::{self, By, Column};
//! use burn_wgsl::{Wgsl, WgslDevice, scope};
//!
//! let device = WgslDevice::default();
//! let x = Tensor::<Wgsl, 2>::random([64, 64], Distribution::Default, &device);
//! match profiler::profile(&device, || {
//!     let _scope = scope("forward");
//!     x.clone().matmul(x).exp().into_data()
//! }) {
//!     Ok((_result, profile)) => println!("{}", profile.table(By::Op, Column::Time)),
//!     Err(error) => println!("{error}"), // an adapter without timestamps
//! }
//! ```
//!
//! [`profile`] measures a piece of work; [`start`] and [`Session::finish`] do the same without a
//! closure, and [`Scheduled`] profiles some steps of a loop. [`Profile::write_trace`] writes a
//! trace that Perfetto and Chrome show, with the scopes, the host and the GPU on one clock;
//! [`Profile::write_html`] writes one page that shows the same, and tables.
//!
//! While a profile is taken, each launch has a compute pass of its own, which adds a gap after it,
//! and pending results are computed where a scope begins and ends. The wall time is therefore
//! longer than without a profile; kernel times are comparable. Without a profile, nothing is
//! measured and nothing waits.

mod page;
#[cfg(not(feature = "internals"))]
mod peaks;
#[cfg(feature = "internals")]
pub mod peaks;
mod schedule;
mod table;
mod trace;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use web_time::Instant;

use crate::device::{DeviceError, WgslDevice};
use crate::runtime::{
    CaptureError, Captured, CapturedKernel, Event, Location, Observation, ObservedDevice, Observer,
    Origin, RuntimeError, current_scope,
};

pub use peaks::{Peaks, peaks};
pub use schedule::{Schedule, Scheduled};
pub use table::{By, Column};

#[cfg(doc)]
use crate::scope;

/// Why a profile cannot be taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The device does not exist or cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device is the CPU, whose peak rates are not measured.
    #[error(
        "the CPU device runs no kernels that would measure its peak rates; profile it without them"
    )]
    Cpu,
    /// The adapter or its driver does not support timestamp queries.
    #[error(
        "{device} does not support timestamp queries, so its GPU time cannot be measured; measure \
         wall time with a sync instead"
    )]
    NoTimestamps {
        /// The adapter's name.
        device: String,
    },
    /// Another profile of the device is being taken.
    #[error("a profile of {device} is already being taken; wait until it ends")]
    Busy {
        /// The adapter's name.
        device: String,
    },
    /// The device failed while the profile was taken.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A trace cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// The GPU time of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTime {
    /// The kernel's name, which is also the name of its WGSL file and its launcher.
    pub name: &'static str,
    /// The name and the definitions of the variant.
    pub variant: String,
    /// Number of launches.
    pub calls: u64,
    /// Total GPU time of all launches.
    pub time: Duration,
}

/// A kernel launch. A launch that may run too long is several of them. On the CPU device, an op.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The index of its variant in [`Profile::kernels`].
    pub variant: usize,
    /// The op that launched it: of several ops in one kernel, the last.
    pub op: &'static str,
    /// The elementwise ops in the kernel, if there are any, in order.
    pub ops: Vec<&'static str>,
    /// The line of the program that called the op, if [`debug::set_lines`](crate::debug::set_lines) is on.
    pub line: &'static str,
    /// The scopes that it was recorded in, from the outermost on, separated by slashes.
    pub scope: String,
    /// The types and shapes of the operands as the kernel sees them, such as
    /// `f32 [8, 16] -> f32 [8, 1]`; of fused elementwise ops, how many tensors are read and written,
    /// and their number of elements.
    pub operands: String,
    /// When the host recorded it, since the profile began.
    pub recorded: Duration,
    /// When it began on the GPU, since the profile began: on the host's clock, late by at most the
    /// latency of a wait, about 0.1 ms.
    pub start: Duration,
    /// GPU time.
    pub time: Duration,
    /// Number of workgroups.
    pub workgroups: u64,
    /// Size of the operands in bytes. What the kernel reads and writes is at most that, unless it
    /// reads operands repeatedly.
    pub bytes: u64,
    /// Approximate number of operations; a multiplication and an addition are two.
    pub work: u64,
}

/// What the host did: a [`scope`], or a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostSpan {
    /// The name of the scope with those around it, or of the op and the transfer.
    pub name: String,
    /// The thread: a small number.
    pub thread: u64,
    /// When it began, since the profile began.
    pub start: Duration,
    /// How long it took; zero for a point in time.
    pub time: Duration,
}

/// The memory that an op allocated during a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpMemory {
    /// The op.
    pub op: &'static str,
    /// Number of tensors.
    pub allocations: u64,
    /// Their size in bytes, in total.
    pub bytes: u64,
    /// The size of those that are still in use at the end.
    pub kept: u64,
}

/// A profile: the kernel launches, what the host did, and the memory that ops allocated.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// The adapter's name.
    pub device: String,
    /// Whether this is the CPU device, whose ops take the place of kernels.
    pub of_host: bool,
    /// One entry for each kernel variant that ran, by descending time.
    pub kernels: Vec<KernelTime>,
    /// All launches, in the order in which they were recorded.
    pub spans: Vec<Span>,
    /// The scopes and transfers that ended, in order.
    pub host: Vec<HostSpan>,
    /// The memory that each op allocated, by descending size.
    pub memory: Vec<OpMemory>,
    /// Wall time.
    pub wall: Duration,
    /// The peak rates of the device, if they were measured: tables show rates as shares of them.
    pub peaks: Option<Peaks>,
}

impl Profile {
    fn new(device: String, captured: &[Captured], host: Vec<HostSpan>, wall: Duration) -> Self {
        let entries = captured.iter().map(|captured| KernelTime {
            name: captured.kernel.name,
            variant: captured.kernel.variant.clone(),
            calls: 1,
            time: captured.time,
        });
        let kernels = merged(entries);
        let indices: HashMap<&str, usize> = kernels
            .iter()
            .enumerate()
            .map(|(index, kernel)| (&kernel.variant[..], index))
            .collect();
        let spans = captured
            .iter()
            .map(|captured| Span {
                kernel: captured.kernel.name,
                variant: indices.get(&captured.kernel.variant[..]).copied().unwrap_or_default(),
                op: captured.origin.op,
                line: captured.origin.line,
                ops: captured.kernel.ops.clone(),
                scope: captured.scope.to_string(),
                operands: captured.operands.clone(),
                recorded: captured.recorded,
                start: captured.start,
                time: captured.time,
                workgroups: captured.workgroups,
                bytes: captured.bytes,
                work: captured.work,
            })
            .collect();
        Self { device, spans, host, wall, kernels, ..Self::default() }
    }

    /// Returns the profile with the peak rates of its device, which [`peaks()`] measures.
    #[must_use]
    pub fn with_peaks(self, peaks: Peaks) -> Self {
        Self { peaks: Some(peaks), ..self }
    }

    /// Returns the total time of all kernels. The times of kernels that overlap are added in full.
    pub fn time(&self) -> Duration {
        self.kernels.iter().map(|kernel| kernel.time).sum()
    }

    /// Returns the time from the beginning of the first kernel to the end of the last.
    pub fn gpu_span(&self) -> Duration {
        let start = self.spans.iter().map(|span| span.start).min().unwrap_or_default();
        let end = self.spans.iter().map(|span| span.start + span.time).max().unwrap_or_default();
        end - start
    }

    /// Returns the total number of launches.
    pub fn calls(&self) -> u64 {
        self.kernels.iter().map(|kernel| kernel.calls).sum()
    }

    /// Returns the times with the variants of each kernel merged into one entry, by descending
    /// time.
    pub fn by_name(&self) -> Vec<KernelTime> {
        let kernels = self.kernels.iter();
        merged(
            kernels.map(|kernel| KernelTime { variant: kernel.name.to_owned(), ..kernel.clone() }),
        )
    }
}

/// Merges entries with equal variants, and sorts by descending time.
fn merged(entries: impl Iterator<Item = KernelTime>) -> Vec<KernelTime> {
    let mut kernels: Vec<KernelTime> = Vec::new();
    let mut indices = HashMap::new();
    for entry in entries {
        match indices.get(&entry.variant) {
            None => {
                indices.insert(entry.variant.clone(), kernels.len());
                kernels.push(entry);
            }
            Some(&index) => {
                let merged: &mut KernelTime = &mut kernels[index];
                merged.calls += entry.calls;
                merged.time += entry.time;
            }
        }
    }
    kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.time));
    kernels
}

/// Runs `work` and measures the GPU time of every kernel launched on the device meanwhile.
///
/// Launches by other threads are included. Waits for the GPU at the end.
///
/// ```no_run
/// use burn::tensor::{Distribution, Tensor};
/// use burn_wgsl::profiler::{By, Column};
/// use burn_wgsl::{Wgsl, WgslDevice, profile};
///
/// let device = WgslDevice::default();
/// let x = Tensor::<Wgsl, 2>::random([256, 256], Distribution::Default, &device);
/// let (_, profile) = profile(&device, || x.clone().matmul(x.clone()).exp().sum().into_scalar())?;
/// println!("{}", profile.table(By::Op, Column::Time));
/// # Ok::<(), burn_wgsl::ProfileError>(())
/// ```
///
/// # Errors
///
/// As [`start`], and as [`Session::finish`].
pub fn profile<R>(
    device: &WgslDevice,
    work: impl FnOnce() -> R,
) -> Result<(R, Profile), ProfileError> {
    let session = start(device)?;
    let result = work();
    Ok((result, session.finish()?))
}

/// Begins a profile of a device, which [`Session::finish`] ends.
///
/// ```no_run
/// use burn_wgsl::{WgslDevice, profiler};
///
/// let session = profiler::start(&WgslDevice::default())?;
/// // ... a step
/// let profile = session.finish()?;
/// profile.write_html("profile.html")?;
/// # Ok::<(), burn_wgsl::ProfileError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device, it has no timestamps, or another profile of it is being taken. The CPU
/// device needs neither.
pub fn start(device: &WgslDevice) -> Result<Session, ProfileError> {
    let device = ObservedDevice::of(device)?;
    let name = device.name();
    let began = match &device {
        ObservedDevice::Gpu(runtime) => runtime.begin_capture().map_err(|error| match error {
            CaptureError::NoTimestamps => ProfileError::NoTimestamps { device: name },
            CaptureError::Busy => ProfileError::Busy { device: name },
            CaptureError::Runtime(error) => ProfileError::Runtime(error),
        })?,
        ObservedDevice::Host => Instant::now(),
    };
    let host = Arc::new(Host {
        began,
        is_cpu_profile: matches!(device, ObservedDevice::Host),
        computed: Mutex::default(),
        spans: Mutex::default(),
        memory: Mutex::default(),
        threads: Mutex::default(),
    });
    let (observation, _) = device.observe_memory(host.clone());
    Ok(Session { device, host, observation: Some(observation) })
}

/// A profile that is being taken. If it is dropped, it is discarded.
#[must_use = "a profile ends with `finish`"]
pub struct Session {
    device: ObservedDevice,
    host: Arc<Host>,
    /// Present until the profile ends.
    observation: Option<Observation>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

impl Session {
    /// Waits for the GPU and returns the profile.
    ///
    /// # Errors
    ///
    /// Returns an error if the device failed or was lost; also in a browser, which cannot block.
    pub fn finish(self) -> Result<Profile, ProfileError> {
        if let ObservedDevice::Gpu(runtime) = &self.device {
            runtime.check_can_block()?;
        }
        pollster::block_on(self.finish_async())
    }

    /// Awaits the GPU and returns the profile, also in a browser.
    ///
    /// # Errors
    ///
    /// Returns an error if the device failed or was lost.
    pub async fn finish_async(mut self) -> Result<Profile, ProfileError> {
        let recorded = self.device.record_deferred();
        // The readback of the timestamps is not part of the profile.
        self.observation = None;
        // The capture ends also if the device failed.
        let captured = match &self.device {
            ObservedDevice::Gpu(runtime) => runtime.end_capture().await,
            ObservedDevice::Host => Ok(std::mem::take(&mut *self.host.computed.lock())),
        };
        recorded?;
        let captured = captured?;
        let wall = self.host.began.elapsed();
        let host = std::mem::take(&mut *self.host.spans.lock());
        let memory = std::mem::take(&mut *self.host.memory.lock()).by_op();
        let of_host = self.host.is_cpu_profile;
        Ok(Profile { memory, of_host, ..Profile::new(self.device.name(), &captured, host, wall) })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let (Some(_), ObservedDevice::Gpu(runtime)) = (&self.observation, &self.device) {
            runtime.cancel_capture();
        }
    }
}

/// Records what the host does.
struct Host {
    began: Instant,
    /// Whether the CPU is profiled, whose ops take the place of launches.
    is_cpu_profile: bool,
    /// These ops.
    computed: Mutex<Vec<Captured>>,
    spans: Mutex<Vec<HostSpan>>,
    memory: Mutex<Allocations>,
    /// The threads so far. Their index is the number of a thread.
    threads: Mutex<Vec<std::thread::ThreadId>>,
}

impl Host {
    fn thread(&self) -> u64 {
        let id = std::thread::current().id();
        let mut threads = self.threads.lock();
        let index = threads.iter().position(|other| *other == id).unwrap_or_else(|| {
            threads.push(id);
            threads.len() - 1
        });
        index as u64
    }

    fn add(&self, name: String, start: Duration, time: Duration) {
        let thread = self.thread();
        self.spans.lock().push(HostSpan { name, thread, start, time });
    }
}

impl Observer for Host {
    fn event(&self, origin: Origin, event: Event<'_>) {
        let (now, op) = (self.began.elapsed(), origin.op);
        match event {
            Event::Scope { name, began } => {
                // A scope around the profile began before it.
                let start = began.saturating_duration_since(self.began);
                self.add(name.to_owned(), start, now.saturating_sub(start));
            }
            Event::Computed { began, took, operands, bytes } => {
                let start = began.saturating_duration_since(self.began);
                if self.is_cpu_profile {
                    self.computed.lock().push(computed(origin, operands, bytes, start, took));
                } else {
                    self.add(format!("{op}: computed on the CPU"), start, took);
                }
            }
            Event::Upload { bytes } => {
                self.add(format!("{op}: upload of {bytes} bytes"), now, Duration::ZERO);
            }
            Event::Readback { bytes } => {
                self.add(format!("{op}: readback of {bytes} bytes"), now, Duration::ZERO);
            }
            Event::Allocate { location, requested, .. } => {
                self.memory.lock().add(op, location, requested);
            }
            Event::Release { location, .. } => self.memory.lock().remove(location),
            _ => {}
        }
    }
}

/// Returns an op of the CPU device as what takes the place of a launch.
fn computed(
    origin: Origin,
    operands: &str,
    bytes: u64,
    start: Duration,
    time: Duration,
) -> Captured {
    let name = origin.op;
    Captured {
        kernel: Arc::new(CapturedKernel { name, variant: name.to_owned(), ops: Vec::new() }),
        origin,
        scope: current_scope().into(),
        operands: operands.to_owned(),
        bytes,
        work: 0,
        workgroups: 1,
        recorded: start,
        start,
        time,
    }
}

/// The memory that ops allocated.
#[derive(Default)]
struct Allocations {
    ops: HashMap<&'static str, OpMemory>,
    /// What is in use: its op and its size.
    live: HashMap<Location, (&'static str, u64)>,
}

impl Allocations {
    fn add(&mut self, op: &'static str, location: Location, bytes: u64) {
        let memory =
            self.ops.entry(op).or_insert(OpMemory { op, allocations: 0, bytes: 0, kept: 0 });
        memory.allocations += 1;
        memory.bytes += bytes;
        memory.kept += bytes;
        self.live.insert(location, (op, bytes));
    }

    /// Memory that was allocated before is not known.
    fn remove(&mut self, location: Location) {
        if let Some((op, bytes)) = self.live.remove(&location)
            && let Some(memory) = self.ops.get_mut(op)
        {
            memory.kept -= bytes;
        }
    }

    /// Returns what each op allocated, by descending size.
    fn by_op(self) -> Vec<OpMemory> {
        let mut ops: Vec<OpMemory> = self.ops.into_values().collect();
        ops.sort_by_key(|memory| (std::cmp::Reverse(memory.bytes), memory.op));
        ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &'static str, variant: &str, calls: u64, micros: u64) -> KernelTime {
        KernelTime { name, variant: variant.to_owned(), calls, time: Duration::from_micros(micros) }
    }

    #[test]
    fn equal_variants_are_merged_and_sorted_by_time() {
        let entries = [
            kernel("a", "a X", 1, 5),
            kernel("b", "b", 1, 20),
            kernel("a", "a X", 1, 6),
            kernel("a", "a", 2, 30),
        ];
        let kernels = merged(entries.into_iter());
        assert_eq!(
            kernels,
            [kernel("a", "a", 2, 30), kernel("b", "b", 1, 20), kernel("a", "a X", 2, 11)]
        );
        let profile = Profile { kernels, ..Profile::default() };
        assert_eq!((profile.calls(), profile.time()), (5, Duration::from_micros(61)));
        assert_eq!(profile.by_name(), [kernel("a", "a", 4, 41), kernel("b", "b", 1, 20)]);
    }
}
