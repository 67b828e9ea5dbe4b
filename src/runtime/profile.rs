//! GPU time by kernel.
//!
//! While a profile is taken, every dispatch gets a compute pass of its own with a timestamp at either end: the only
//! places where every API can write one. The timestamps of a submission are resolved at its end into a small
//! buffer, so the query set stays as small as one submission; the buffers are read back at the end of all.

use std::collections::HashMap;
use std::time::Duration;

use thiserror::Error;

use super::{Runtime, RuntimeError, Variant};
use crate::device::DeviceError;

/// Queries of the set: two for each dispatch. Every API allows this many.
const QUERIES: u32 = 512;
const QUERY_BYTES: u64 = wgpu::QUERY_SIZE as u64;

/// Why a profile cannot be taken.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// There is no such device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device is the CPU, which runs no kernels.
    #[error(
        "the CPU device runs no GPU kernels, so there is no GPU time to measure; measure wall time there"
    )]
    Cpu,
    /// The adapter or its driver has no timestamps.
    #[error(
        "{device} has no timestamp queries, so its GPU time cannot be measured; measure wall time with a sync"
    )]
    NoTimestamps {
        /// The adapter's name.
        device: String,
    },
    /// One profile at a time.
    #[error("a profile of {device} is already being taken; wait for its end")]
    Busy {
        /// The adapter's name.
        device: String,
    },
    /// The device failed while the profile was taken.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// What one kernel took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTime {
    /// The kernel's name: that of its WGSL file and its launcher.
    pub name: &'static str,
    /// The name with the definitions that specialise it.
    pub variant: String,
    /// How often it was launched.
    pub calls: u64,
    /// Its time on the GPU, all calls together.
    pub time: Duration,
}

/// GPU time by kernel, the longest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// One entry for each variant of a kernel that ran.
    pub kernels: Vec<KernelTime>,
}

impl Profile {
    /// The time of all kernels together. Kernels that run side by side are each counted whole.
    pub fn time(&self) -> Duration {
        self.kernels.iter().map(|kernel| kernel.time).sum()
    }

    /// The launches of all kernels together.
    pub fn calls(&self) -> u64 {
        self.kernels.iter().map(|kernel| kernel.calls).sum()
    }

    /// The variants of each kernel taken together.
    #[must_use]
    pub fn by_name(&self) -> Self {
        let kernels = self.kernels.iter();
        Self::sum(
            kernels.map(|kernel| KernelTime { variant: kernel.name.to_owned(), ..kernel.clone() }),
        )
    }

    /// Adds up what has the same variant, and sorts.
    fn sum(times: impl Iterator<Item = KernelTime>) -> Self {
        let mut kernels: Vec<KernelTime> = Vec::new();
        let mut places = HashMap::new();
        for one in times {
            match places.get(&one.variant) {
                None => {
                    places.insert(one.variant.clone(), kernels.len());
                    kernels.push(one);
                }
                Some(&place) => {
                    let sum: &mut KernelTime = &mut kernels[place];
                    sum.calls += one.calls;
                    sum.time += one.time;
                }
            }
        }
        kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.time));
        Self { kernels }
    }
}

/// What the stream records into while a profile is taken.
pub(crate) struct Profiler {
    set: wgpu::QuerySet,
    /// Every dispatch so far, in order.
    dispatches: Vec<Variant>,
    /// How many of them have their timestamps in the query set, not yet resolved.
    open: u32,
    /// The timestamps of earlier ones, in order: the buffer and its length.
    resolved: Vec<(wgpu::Buffer, u64)>,
}

impl Profiler {
    pub fn new(device: &wgpu::Device) -> Self {
        let set = device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("profile"),
            ty: wgpu::QueryType::Timestamp,
            count: QUERIES,
        });
        Self { set, dispatches: Vec::new(), open: 0, resolved: Vec::new() }
    }

    /// Whether the timestamps must be resolved before another dispatch.
    pub fn is_full(&self) -> bool {
        self.open >= QUERIES / 2
    }

    /// The timestamps of the next dispatch's pass.
    pub fn next(&mut self, variant: &Variant) -> wgpu::ComputePassTimestampWrites<'_> {
        let first = self.open * 2;
        self.open += 1;
        self.dispatches.push(variant.clone());
        wgpu::ComputePassTimestampWrites {
            query_set: &self.set,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        }
    }

    /// Moves what the query set holds to a buffer, at the end of a submission.
    pub fn resolve(&mut self, device: &wgpu::Device, encoder: &mut wgpu::CommandEncoder) {
        if self.open == 0 {
            return;
        }
        let queries = std::mem::take(&mut self.open) * 2;
        let size = u64::from(queries) * QUERY_BYTES;
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("timestamps"),
            size,
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        encoder.resolve_query_set(&self.set, 0..queries, &buffer, 0);
        self.resolved.push((buffer, size));
    }
}

/// Stops the recording also where the profiled work panics.
struct Recording<'a>(&'a Runtime);

impl Recording<'_> {
    fn stop(&self) -> Option<Box<Profiler>> {
        let mut stream = self.0.stream.lock();
        stream.submit(&self.0.device, &self.0.queue);
        stream.profiler.take()
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Runtime {
    /// Does `work` and tells the GPU time of every kernel that was launched on this device meanwhile, on any thread.
    /// Waits for the GPU at the end. Launches are further apart than without, so wall time means little here.
    ///
    /// # Errors
    ///
    /// When the adapter has no timestamps, a profile is already being taken, or the device was lost; and in a browser,
    /// where nothing can wait.
    pub fn profile<R>(&self, work: impl FnOnce() -> R) -> Result<(R, Profile), ProfileError> {
        self.check_can_block()?;
        let device = || self.info.name.clone();
        if !self.info.features.timestamps {
            return Err(ProfileError::NoTimestamps { device: device() });
        }
        {
            let mut stream = self.stream.lock();
            if stream.profiler.is_some() {
                return Err(ProfileError::Busy { device: device() });
            }
            stream.submit(&self.device, &self.queue);
            stream.profiler = Some(Box::new(Profiler::new(&self.device)));
        }
        let recording = Recording(self);
        let result = work();
        let profile = match recording.stop() {
            Some(profiler) => self.times(&profiler)?,
            None => Profile::default(),
        };
        Ok((result, profile))
    }

    fn times(&self, profiler: &Profiler) -> Result<Profile, RuntimeError> {
        let total = profiler.resolved.iter().map(|(_, size)| size).sum();
        let stamps: Vec<u64> = pollster::block_on(self.fetch(
            total,
            |encoder, staging| {
                let mut offset = 0;
                for (buffer, size) in &profiler.resolved {
                    encoder.copy_buffer_to_buffer(buffer, 0, staging, offset, *size);
                    offset += size;
                }
            },
            |bytes| {
                bytes.chunks_exact(size_of::<u64>()).map(bytemuck::pod_read_unaligned).collect()
            },
        ))?;
        let period = f64::from(self.queue.get_timestamp_period());
        let times =
            profiler.dispatches.iter().zip(stamps.chunks_exact(2)).map(|(variant, stamps)| {
                KernelTime {
                    name: variant.source.name,
                    variant: variant.to_string(),
                    calls: 1,
                    // A clock that is set back between the two gives no time rather than centuries.
                    time: Duration::from_nanos(
                        (stamps[1].saturating_sub(stamps[0]) as f64 * period) as u64,
                    ),
                }
            });
        Ok(Profile::sum(times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &'static str, variant: &str, calls: u64, micros: u64) -> KernelTime {
        KernelTime { name, variant: variant.to_owned(), calls, time: Duration::from_micros(micros) }
    }

    #[test]
    fn equal_variants_are_added_up_and_the_longest_comes_first() {
        let times = [
            kernel("a", "a X", 1, 5),
            kernel("b", "b", 1, 20),
            kernel("a", "a X", 1, 6),
            kernel("a", "a", 2, 30),
        ];
        let profile = Profile::sum(times.into_iter());
        assert_eq!(
            profile.kernels,
            [kernel("a", "a", 2, 30), kernel("b", "b", 1, 20), kernel("a", "a X", 2, 11)]
        );
        assert_eq!((profile.calls(), profile.time()), (5, Duration::from_micros(61)));
        assert_eq!(profile.by_name().kernels, [kernel("a", "a", 4, 41), kernel("b", "b", 1, 20)]);
    }
}
