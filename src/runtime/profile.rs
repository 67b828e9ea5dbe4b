//! Captures when each kernel launch ran on the GPU, and when the host recorded it.
//!
//! While a capture is taken, every dispatch gets its own compute pass with a timestamp at its
//! beginning and end. Every API can write timestamps there, and some APIs only there. Each
//! submission resolves its timestamps into a small buffer, so the query set covers only one
//! submission. The buffers are read back at the end of the capture.
//!
//! The two clocks are compared once, at the end: the last timestamp is taken when the host has
//! waited for it, so GPU times on the host's clock are late by the latency of a wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use web_time::Instant;

use super::compiler::Plan;
use super::events::{CAPTURES, described_operands};
use super::recorder::Operands;
use super::stall::Largest;
use super::transfer::Source;
use super::{Allocation, Runtime, RuntimeError, current_op, current_scope};
use crate::device::CAN_BLOCK;

/// Number of queries in the query set: two for each dispatch. Every API allows this many.
const QUERY_COUNT: u32 = 512;
const QUERY_BYTES: u64 = wgpu::QUERY_SIZE as u64;

/// Why a capture cannot begin.
#[derive(Debug)]
pub(crate) enum CaptureError {
    /// The adapter or its driver does not support timestamp queries.
    NoTimestamps,
    /// Another capture is being taken.
    Busy,
    /// The device failed.
    Runtime(RuntimeError),
}

impl From<RuntimeError> for CaptureError {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

/// What is known of a kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CapturedKernel {
    /// The name of its WGSL file.
    pub name: &'static str,
    /// The name and the definitions of the variant.
    pub variant: String,
    /// The elementwise ops that it computes, in order.
    pub ops: Vec<&'static str>,
}

/// A kernel launch, or a part of one. Times are relative to the beginning of the capture.
#[derive(Debug)]
pub(crate) struct Captured {
    pub kernel: Arc<CapturedKernel>,
    /// The op that was running.
    pub op: &'static str,
    pub scope: Arc<str>,
    /// The types and shapes of the operands.
    pub operands: String,
    /// The size of the operands in bytes.
    pub bytes: u64,
    /// Approximate number of operations.
    pub work: u64,
    pub workgroups: u64,
    /// When the host recorded it.
    pub recorded: Duration,
    /// When it began on the GPU, on the host's clock.
    pub start: Duration,
    /// GPU time.
    pub time: Duration,
}

/// The dispatches recorded while a capture is taken, and their timestamps.
pub(crate) struct Profiler {
    began: Instant,
    query_set: wgpu::QuerySet,
    kernels: FxHashMap<u32, Arc<CapturedKernel>>,
    /// The last scope, which most dispatches share.
    scope: Arc<str>,
    /// All dispatches, in order. Their times on the GPU are not known yet.
    dispatches: Vec<Captured>,
    /// Number of dispatches whose timestamps are in the query set and not yet resolved.
    unresolved: u32,
    /// The resolved timestamps, in order: each buffer and its size in bytes.
    resolved: Vec<(wgpu::Buffer, u64)>,
}

impl Profiler {
    fn new(device: &wgpu::Device) -> Self {
        CAPTURES.fetch_add(1, Ordering::Relaxed);
        let query_set = device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("profile"),
            ty: wgpu::QueryType::Timestamp,
            count: QUERY_COUNT,
        });
        Self {
            began: Instant::now(),
            query_set,
            kernels: FxHashMap::default(),
            scope: "".into(),
            dispatches: Vec::new(),
            unresolved: 0,
            resolved: Vec::new(),
        }
    }

    /// Returns whether the query set is full and must be resolved before another dispatch.
    pub fn is_full(&self) -> bool {
        self.unresolved >= QUERY_COUNT / 2
    }

    /// Adds a dispatch of some workgroups and returns the timestamp writes for its pass.
    pub fn timestamp_writes(
        &mut self,
        plan: &Plan,
        operands: &Operands<'_>,
        (workgroups, work): (u64, u64),
    ) -> wgpu::ComputePassTimestampWrites<'_> {
        let recorded = self.began.elapsed();
        let kernel = self.kernels.entry(plan.id).or_insert_with(|| {
            Arc::new(CapturedKernel {
                name: plan.variant.source.name,
                variant: plan.variant.to_string(),
                ops: plan.variant.ops.clone(),
            })
        });
        let scope = current_scope();
        if *self.scope != *scope {
            self.scope = scope.into();
        }
        // A binding that a kernel does not use repeats another.
        let mut counted: FxHashSet<*const Allocation> = FxHashSet::default();
        let memory = operands.inputs.iter().chain(operands.also_read).chain(operands.written);
        let bytes: u64 = memory
            .filter(|operand| counted.insert(std::ptr::from_ref(**operand)))
            .map(|operand| operand.bytes())
            .sum();
        self.dispatches.push(Captured {
            kernel: kernel.clone(),
            op: current_op(),
            scope: self.scope.clone(),
            operands: described_operands(),
            bytes: bytes * workgroups / operands.groups.max(1),
            work,
            workgroups,
            recorded,
            start: Duration::ZERO,
            time: Duration::ZERO,
        });
        let first = self.unresolved * 2;
        self.unresolved += 1;
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
        self.resolve_queries(device, encoder, queries);
    }

    fn resolve_queries(
        &mut self,
        device: &wgpu::Device,
        encoder: &mut wgpu::CommandEncoder,
        queries: u32,
    ) {
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

impl Drop for Profiler {
    fn drop(&mut self) {
        CAPTURES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Runtime {
    /// Begins a capture of the kernel launches on this device. Returns the host's time, from which
    /// all times are counted.
    pub(crate) fn begin_capture(&self) -> Result<Instant, CaptureError> {
        if !self.info().features.timestamps {
            return Err(CaptureError::NoTimestamps);
        }
        self.record_deferred()?;
        let recorder = &mut self.state.lock().recorder;
        if recorder.profiler.is_some() {
            return Err(CaptureError::Busy);
        }
        recorder.submit(&self.gpu)?;
        let profiler = Profiler::new(&self.gpu.device);
        let began = profiler.began;
        recorder.profiler = Some(Box::new(profiler));
        Ok(began)
    }

    /// Ends the capture and drops it.
    pub(crate) fn cancel_capture(&self) {
        self.stop_capture();
    }

    /// Submits the recorded commands and removes the profiler from the recorder.
    fn stop_capture(&self) -> Option<Box<Profiler>> {
        let mut state = self.state.lock();
        // The wait for the results reports a driver that does not return.
        let _ = state.recorder.submit(&self.gpu);
        state.recorder.profiler.take()
    }

    /// Ends the capture, waits for the GPU, and returns all launches in order. In a browser the
    /// clocks of host and GPU agree up to the time of a readback, elsewhere up to that of a wait.
    pub(crate) async fn end_capture(&self) -> Result<Vec<Captured>, RuntimeError> {
        let recorded = self.record_deferred();
        // The capture ends also if the device failed.
        let profiler = self.stop_capture();
        recorded?;
        let Some(mut profiler) = profiler else { return Ok(Vec::new()) };
        if profiler.dispatches.is_empty() {
            return Ok(Vec::new());
        }
        let written = self.write_last_timestamp(&mut profiler)?;
        let sources: Vec<Source<'_>> = profiler
            .resolved
            .iter()
            .map(|(buffer, bytes)| Source { buffer, offset: 0, bytes: *bytes })
            .collect();
        let read = self.read_sources(&sources).await?;
        let now = written.unwrap_or_else(|| profiler.began.elapsed());
        let timestamps: Vec<u64> = read
            .iter()
            .flat_map(|bytes| bytes.chunks_exact(size_of::<u64>()))
            .map(bytemuck::pod_read_unaligned)
            .collect();
        let period = f64::from(self.gpu.queue.get_timestamp_period());
        let nanos = |ticks: u64| Duration::from_nanos((ticks as f64 * period) as u64);
        let last = timestamps.last().copied().unwrap_or_default();
        // On the host's clock. The end of a launch is not after the beginning of the next, which
        // rounded times could be.
        let at = |ticks: u64| now.saturating_sub(nanos(last.saturating_sub(ticks)));
        for (captured, pair) in profiler.dispatches.iter_mut().zip(timestamps.chunks_exact(2)) {
            captured.start = at(pair[0]);
            // Saturates to zero if the clock was reset between the two timestamps.
            captured.time = at(pair[1]).saturating_sub(captured.start);
        }
        Ok(std::mem::take(&mut profiler.dispatches))
    }

    /// Writes a timestamp and waits for it. Returns the host's time then; `None` in a browser, which
    /// cannot wait.
    fn write_last_timestamp(
        &self,
        profiler: &mut Profiler,
    ) -> Result<Option<Duration>, RuntimeError> {
        let device = &self.gpu.device;
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                query_set: &profiler.query_set,
                beginning_of_pass_write_index: Some(0),
                end_of_pass_write_index: Some(1),
            }),
        }));
        profiler.resolve_queries(device, &mut encoder, 2);
        let submission = self.gpu.submit(&[], Some(encoder), Largest::default());
        if !CAN_BLOCK {
            return Ok(None);
        }
        self.gpu.wait(Some(submission))?;
        Ok(Some(profiler.began.elapsed()))
    }
}
