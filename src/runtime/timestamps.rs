//! The launches of a capture, and when each of them ran on the GPU.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use web_time::Instant;

use super::allocation::Allocation;
use super::compiler::Plan;
use super::events::{CAPTURES, current_scope, described_operands};
use super::origin::{Origin, current_origin};

/// Number of queries in the query set: two for each dispatch. Every API allows this many.
const QUERY_COUNT: u32 = 512;
const QUERY_BYTES: u64 = wgpu::QUERY_SIZE as u64;

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
    pub origin: Origin,
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
    pub began: Instant,
    pub query_set: wgpu::QuerySet,
    kernels: FxHashMap<u32, Arc<CapturedKernel>>,
    /// The last scope, which most dispatches share.
    scope: Arc<str>,
    /// All dispatches, in order. Their times on the GPU are not known yet.
    pub dispatches: Vec<Captured>,
    /// Number of dispatches whose timestamps are in the query set and not yet resolved.
    unresolved: u32,
    /// The resolved timestamps, in order: each buffer and its size in bytes.
    pub resolved: Vec<(wgpu::Buffer, u64)>,
}

impl Profiler {
    pub fn new(device: &wgpu::Device) -> Self {
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

    /// Adds a dispatch of some of `groups` workgroups, which reads and writes `memory`, and returns the timestamp
    /// writes for its pass.
    pub fn timestamp_writes<'m>(
        &mut self,
        plan: &Plan,
        memory: impl Iterator<Item = &'m Allocation>,
        groups: u64,
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
        let bytes: u64 = memory
            .filter(|operand| counted.insert(std::ptr::from_ref(*operand)))
            .map(|operand| operand.bytes())
            .sum();
        self.dispatches.push(Captured {
            kernel: kernel.clone(),
            origin: current_origin(),
            scope: self.scope.clone(),
            operands: described_operands(),
            bytes: bytes * workgroups / groups.max(1),
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

    pub fn resolve_queries(
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
