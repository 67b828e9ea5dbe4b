//! GPU time by kernel.
//!
//! While a profile is taken, every dispatch gets its own compute pass with a timestamp at its
//! beginning and end. Every API can write timestamps there, and some APIs only there. Each
//! submission resolves its timestamps into a small buffer, so the query set covers only one
//! submission. The buffers are read back at the end of the profile.

use std::collections::HashMap;
use std::time::Duration;

use thiserror::Error;

use super::transfer::Source;
use super::{Runtime, RuntimeError, Variant};
use crate::device::DeviceError;

/// Number of queries in the query set: two for each dispatch. Every API allows this many.
const QUERY_COUNT: u32 = 512;
const QUERY_BYTES: u64 = wgpu::QUERY_SIZE as u64;

/// Why a profile cannot be taken.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The device does not exist or cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device is the CPU, which runs no kernels.
    #[error(
        "the CPU device runs no GPU kernels, so there is no GPU time to measure; measure wall time \
         instead"
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

/// GPU time by kernel, sorted by descending time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// One entry for each kernel variant that ran.
    pub kernels: Vec<KernelTime>,
}

impl Profile {
    /// Returns the total time of all kernels. The times of kernels that overlap are added in full.
    pub fn time(&self) -> Duration {
        self.kernels.iter().map(|kernel| kernel.time).sum()
    }

    /// Returns the total number of launches.
    pub fn calls(&self) -> u64 {
        self.kernels.iter().map(|kernel| kernel.calls).sum()
    }

    /// Returns the profile with the variants of each kernel merged into one entry.
    #[must_use]
    pub fn by_name(&self) -> Self {
        let kernels = self.kernels.iter();
        Self::merge(
            kernels.map(|kernel| KernelTime { variant: kernel.name.to_owned(), ..kernel.clone() }),
        )
    }

    /// Merges entries with equal variants, and sorts by descending time.
    fn merge(entries: impl Iterator<Item = KernelTime>) -> Self {
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
        Self { kernels }
    }
}

/// The dispatches recorded while a profile is taken, and their timestamps.
pub(crate) struct Profiler {
    query_set: wgpu::QuerySet,
    /// The variants of all dispatches, in order.
    dispatches: Vec<Variant>,
    /// Number of dispatches whose timestamps are in the query set and not yet resolved.
    unresolved: u32,
    /// The resolved timestamps, in order: each buffer and its size in bytes.
    resolved: Vec<(wgpu::Buffer, u64)>,
}

impl Profiler {
    pub fn new(device: &wgpu::Device) -> Self {
        let query_set = device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("profile"),
            ty: wgpu::QueryType::Timestamp,
            count: QUERY_COUNT,
        });
        Self { query_set, dispatches: Vec::new(), unresolved: 0, resolved: Vec::new() }
    }

    /// Returns whether the query set is full and must be resolved before another dispatch.
    pub fn is_full(&self) -> bool {
        self.unresolved >= QUERY_COUNT / 2
    }

    /// Adds a dispatch and returns the timestamp writes for its pass.
    pub fn timestamp_writes(&mut self, variant: &Variant) -> wgpu::ComputePassTimestampWrites<'_> {
        let first = self.unresolved * 2;
        self.unresolved += 1;
        self.dispatches.push(variant.clone());
        wgpu::ComputePassTimestampWrites {
            query_set: &self.query_set,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        }
    }

    /// Resolves the query set into a new buffer. Called at the end of each submission.
    pub fn resolve(&mut self, device: &wgpu::Device, encoder: &mut wgpu::CommandEncoder) {
        if self.unresolved == 0 {
            return;
        }
        let queries = std::mem::take(&mut self.unresolved) * 2;
        let size = u64::from(queries) * QUERY_BYTES;
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("timestamps"),
            size,
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        encoder.resolve_query_set(&self.query_set, 0..queries, &buffer, 0);
        self.resolved.push((buffer, size));
    }
}

/// Stops the profiler when dropped, also if the profiled work panics.
struct ProfilerGuard<'a>(&'a Runtime);

impl ProfilerGuard<'_> {
    /// Submits the recorded commands and removes the profiler from the recorder.
    fn stop(&self) -> Option<Box<Profiler>> {
        let mut state = self.0.state.lock();
        state.recorder.submit(&self.0.gpu);
        state.recorder.profiler.take()
    }
}

impl Drop for ProfilerGuard<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Runtime {
    /// Runs `work` and measures the GPU time of every kernel launched on this device meanwhile.
    ///
    /// Launches by other threads are included. Waits for the GPU at the end. Profiling adds gaps
    /// between the launches, so the wall time of `work` is not representative.
    ///
    /// # Errors
    ///
    /// Returns an error if the adapter does not support timestamp queries, another profile is being
    /// taken, or the device was lost. Returns an error in a browser, which cannot block.
    pub fn profile<R>(&self, work: impl FnOnce() -> R) -> Result<(R, Profile), ProfileError> {
        self.check_can_block()?;
        let device = || self.name();
        if !self.info().features.timestamps {
            return Err(ProfileError::NoTimestamps { device: device() });
        }
        self.record_deferred()?;
        {
            let recorder = &mut self.state.lock().recorder;
            if recorder.profiler.is_some() {
                return Err(ProfileError::Busy { device: device() });
            }
            recorder.submit(&self.gpu);
            recorder.profiler = Some(Box::new(Profiler::new(&self.gpu.device)));
        }
        let guard = ProfilerGuard(self);
        let result = work();
        self.record_deferred()?;
        let profile = match guard.stop() {
            Some(profiler) => self.read_profile(&profiler)?,
            None => Profile::default(),
        };
        Ok((result, profile))
    }

    /// Reads back the timestamps and converts them to times.
    fn read_profile(&self, profiler: &Profiler) -> Result<Profile, RuntimeError> {
        let sources: Vec<Source<'_>> = profiler
            .resolved
            .iter()
            .map(|(buffer, bytes)| Source { buffer, offset: 0, bytes: *bytes })
            .collect();
        let read = pollster::block_on(self.read_sources(&sources))?;
        let timestamps: Vec<u64> = read
            .iter()
            .flat_map(|bytes| bytes.chunks_exact(size_of::<u64>()))
            .map(bytemuck::pod_read_unaligned)
            .collect();
        let period = f64::from(self.gpu.queue.get_timestamp_period());
        let pairs = timestamps.chunks_exact(2);
        let entries = profiler.dispatches.iter().zip(pairs).map(|(variant, pair)| {
            // Saturates to zero if the clock was reset between the two timestamps.
            let ticks = pair[1].saturating_sub(pair[0]);
            KernelTime {
                name: variant.source.name,
                variant: variant.to_string(),
                calls: 1,
                time: Duration::from_nanos((ticks as f64 * period) as u64),
            }
        });
        Ok(Profile::merge(entries))
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
        let profile = Profile::merge(entries.into_iter());
        assert_eq!(
            profile.kernels,
            [kernel("a", "a", 2, 30), kernel("b", "b", 1, 20), kernel("a", "a X", 2, 11)]
        );
        assert_eq!((profile.calls(), profile.time()), (5, Duration::from_micros(61)));
        assert_eq!(profile.by_name().kernels, [kernel("a", "a", 4, 41), kernel("b", "b", 1, 20)]);
    }
}
