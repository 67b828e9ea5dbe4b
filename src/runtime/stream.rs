//! The command stream: records commands and submits them in batches.
//!
//! One compute pass stays open for as long as possible. Parameters and small uploads are collected
//! on the host. Right before a submission, one `queue.write_buffer` writes all parameters and
//! another writes all uploads. The queue executes these writes after all earlier submissions and
//! before the recorded commands, so data that submitted commands still need is not overwritten.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::memory::Pool;
use super::profile::Profiler;
use super::{Interface, ParamsBinding};

/// Alignment of dynamic uniform offsets: the largest that any adapter requires.
const PARAMS_ALIGN: usize = 256;
/// Size of a parameter binding in bytes, which is the maximum size of a kernel's parameters.
pub(crate) const PARAMS_SIZE: usize = 512;
/// Capacity for the parameters of one submission, in bytes.
const PARAMS_CAPACITY: usize = 256 << 10;
/// Capacity for the small uploads of one submission, in bytes.
const UPLOADS_CAPACITY: usize = 1 << 20;
/// Maximum number of dispatches in one submission.
const MAX_DISPATCHES: usize = 128;
/// Approximate maximum number of operations in one submission. A slow GPU takes on the order of a
/// hundred milliseconds for it, far below any watchdog timeout.
const MAX_WORK: u64 = 1 << 34;
/// At most this many submissions are in flight, because each of them uses driver memory. Above the
/// limit, `submit` waits for the oldest.
const MAX_IN_FLIGHT: usize = 64;
/// Maximum number of bind groups in each of the two generations of the cache.
const MAX_BIND_GROUPS: usize = 2048;

/// Cache key of a bind group: interface, and `(buffer id, offset, size)` of each allocation.
type BindGroupKey = (Interface, SmallVec<[(u64, u64, u64); 6]>);

/// The recorded commands of a device, and its submissions in flight.
pub(crate) struct Stream {
    encoder: Option<wgpu::CommandEncoder>,
    pass: Option<wgpu::ComputePass<'static>>,
    params: wgpu::Buffer,
    /// Parameters of the recorded dispatches, written to `params` before the submission.
    pending_params: Vec<u8>,
    uploads: wgpu::Buffer,
    /// Data of the recorded small uploads, written to `uploads` before the submission.
    pending_uploads: Vec<u8>,
    /// Number of recorded dispatches.
    dispatches: usize,
    /// Approximate number of recorded operations.
    work: u64,
    in_flight: VecDeque<wgpu::SubmissionIndex>,
    /// The pool whose retired buffers are destroyed at each submission.
    pool: Arc<Pool>,
    /// Bind groups of the current generation of the cache.
    young_bind_groups: FxHashMap<BindGroupKey, wgpu::BindGroup>,
    /// Bind groups of the previous generation of the cache.
    old_bind_groups: FxHashMap<BindGroupKey, wgpu::BindGroup>,
    /// Present while a profile is taken.
    pub profiler: Option<Box<Profiler>>,
}

/// A dispatch ready to be recorded.
pub(crate) struct RecordedDispatch<'a> {
    pub variant: &'a super::Variant,
    pub pipeline: &'a wgpu::ComputePipeline,
    pub layout: &'a wgpu::BindGroupLayout,
    pub interface: Interface,
    pub inputs: &'a [&'a super::Allocation],
    pub outputs: &'a [&'a super::Allocation],
    pub params: &'a [u8],
    pub grid: (u32, u32, u32),
    /// Approximate number of operations, used to bound how long a submission runs.
    pub work: u64,
}

impl Stream {
    pub fn new(device: &wgpu::Device, pool: Arc<Pool>) -> Self {
        let buffer = |label, size: usize, usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size: size as u64,
                usage: usage | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        };
        Self {
            encoder: None,
            pass: None,
            // A binding is always `PARAMS_SIZE` long and may start close to the end of
            // `PARAMS_CAPACITY`.
            params: buffer("params", PARAMS_CAPACITY + PARAMS_SIZE, wgpu::BufferUsages::UNIFORM),
            pending_params: Vec::with_capacity(PARAMS_CAPACITY),
            uploads: buffer("uploads", UPLOADS_CAPACITY, wgpu::BufferUsages::COPY_SRC),
            pending_uploads: Vec::new(),
            dispatches: 0,
            work: 0,
            in_flight: VecDeque::new(),
            pool,
            young_bind_groups: FxHashMap::default(),
            old_bind_groups: FxHashMap::default(),
            profiler: None,
        }
    }

    /// Records one dispatch. Submits the earlier commands first if a limit would be exceeded.
    pub fn dispatch(
        &mut self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        dispatch: RecordedDispatch<'_>,
    ) {
        if self.dispatches >= MAX_DISPATCHES
            || self.work.saturating_add(dispatch.work) > MAX_WORK
            || self.pending_params.len() + PARAMS_SIZE > PARAMS_CAPACITY
            || self.profiler.as_ref().is_some_and(|profiler| profiler.is_full())
        {
            self.submit(device, queue);
        }
        let bind_group = self.bind_group(device, &dispatch);
        let uniform = dispatch.interface.params == ParamsBinding::Uniform;
        let offset = self.pending_params.len() as u32;
        if uniform {
            self.pending_params.extend_from_slice(dispatch.params);
            let aligned = self.pending_params.len().next_multiple_of(PARAMS_ALIGN);
            self.pending_params.resize(aligned, 0);
        }
        let offsets: &[u32] = if uniform { std::slice::from_ref(&offset) } else { &[] };
        let pass = self.open_pass(device, dispatch.variant);
        pass.set_pipeline(dispatch.pipeline);
        pass.set_bind_group(0, &bind_group, offsets);
        if !uniform {
            pass.set_immediates(0, dispatch.params);
        }
        let (x, y, z) = dispatch.grid;
        pass.dispatch_workgroups(x, y, z);
        self.dispatches += 1;
        self.work += dispatch.work;
    }

    /// Returns the bind group of a dispatch from the cache, or creates it.
    ///
    /// A full young generation replaces the old one. A bind group found in the old generation moves
    /// to the young one.
    fn bind_group(
        &mut self,
        device: &wgpu::Device,
        dispatch: &RecordedDispatch<'_>,
    ) -> wgpu::BindGroup {
        let allocations = || dispatch.inputs.iter().chain(dispatch.outputs);
        let key: BindGroupKey =
            (dispatch.interface, allocations().map(|a| (a.buffer.id, a.offset, a.size)).collect());
        if let Some(bind_group) = self.young_bind_groups.get(&key) {
            return bind_group.clone();
        }
        let bind_group = self.old_bind_groups.remove(&key).unwrap_or_else(|| {
            let mut entries: SmallVec<[wgpu::BindGroupEntry<'_>; 7]> = SmallVec::new();
            if dispatch.interface.params == ParamsBinding::Uniform {
                entries.push(entry(0, &self.params, 0, PARAMS_SIZE as u64));
            }
            for allocation in allocations() {
                entries.push(entry(
                    entries.len() as u32,
                    &allocation.buffer.raw,
                    allocation.offset,
                    allocation.size,
                ));
            }
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: dispatch.layout,
                entries: &entries,
            })
        });
        if self.young_bind_groups.len() >= MAX_BIND_GROUPS {
            self.old_bind_groups = std::mem::take(&mut self.young_bind_groups);
        }
        self.young_bind_groups.insert(key, bind_group.clone());
        bind_group
    }

    /// Clears the bind group cache. Cached bind groups keep their buffers alive.
    pub fn clear_bind_groups(&mut self) {
        self.young_bind_groups.clear();
        self.old_bind_groups.clear();
    }

    /// Returns the open pass, or begins one. While a profile is taken, begins a new pass for each
    /// dispatch.
    fn open_pass(
        &mut self,
        device: &wgpu::Device,
        variant: &super::Variant,
    ) -> &mut wgpu::ComputePass<'static> {
        let timestamp_writes = self.profiler.as_mut().map(|profiler| {
            self.pass = None;
            profiler.timestamp_writes(variant)
        });
        let encoder = self.encoder.get_or_insert_with(|| {
            device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
        });
        self.pass.get_or_insert_with(|| {
            let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
            encoder.begin_compute_pass(&descriptor).forget_lifetime()
        })
    }

    /// Ends the open pass and returns the encoder, for copies.
    pub fn copy_encoder(&mut self, device: &wgpu::Device) -> &mut wgpu::CommandEncoder {
        self.pass = None;
        self.encoder.get_or_insert_with(|| {
            device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
        })
    }

    /// Writes `data` to `allocation`, in order with the recorded commands.
    ///
    /// Returns `false` if there is no memory for the staging buffer.
    pub fn upload(
        &mut self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        allocation: &super::Allocation,
        data: &[u8],
    ) -> bool {
        let padded = data.len().next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT as usize);
        if padded > UPLOADS_CAPACITY / 4 {
            // A queue write runs before the commands of the next submission. The commands recorded
            // before this upload are therefore submitted first.
            self.submit(device, queue);
            let view = wgpu::BufferSize::new(padded as u64).and_then(|len| {
                queue.write_buffer_with(&allocation.buffer.raw, allocation.offset, len)
            });
            return match view {
                Some(mut view) => {
                    view.slice(..data.len()).copy_from_slice(data);
                    true
                }
                None => false,
            };
        }
        if self.pending_uploads.len() + padded > UPLOADS_CAPACITY {
            self.submit(device, queue);
        }
        let offset = self.pending_uploads.len() as u64;
        self.pending_uploads.extend_from_slice(data);
        self.pending_uploads.resize(offset as usize + padded, 0);
        let uploads = self.uploads.clone();
        self.copy_encoder(device).copy_buffer_to_buffer(
            &uploads,
            offset,
            &allocation.buffer.raw,
            allocation.offset,
            padded as u64,
        );
        true
    }

    /// Submits the recorded commands. Waits only if too many submissions are in flight.
    pub fn submit(&mut self, device: &wgpu::Device, queue: &wgpu::Queue) {
        self.pass = None;
        self.dispatches = 0;
        self.work = 0;
        let Some(mut encoder) = self.encoder.take() else {
            self.pool.destroy_retired();
            return;
        };
        if let Some(profiler) = &mut self.profiler {
            profiler.resolve(device, &mut encoder);
        }
        if !self.pending_params.is_empty() {
            queue.write_buffer(&self.params, 0, &self.pending_params);
            self.pending_params.clear();
        }
        if !self.pending_uploads.is_empty() {
            queue.write_buffer(&self.uploads, 0, &self.pending_uploads);
            self.pending_uploads.clear();
        }
        self.in_flight.push_back(queue.submit([encoder.finish()]));
        self.pool.destroy_retired();
        if self.in_flight.len() > MAX_IN_FLIGHT {
            let oldest = self.in_flight.pop_front();
            let _ = device.poll(wgpu::PollType::Wait { submission_index: oldest, timeout: None });
        } else {
            // Lets wgpu reclaim the staging memory of finished submissions.
            let _ = device.poll(wgpu::PollType::Poll);
        }
    }

    /// Clears the list of submissions in flight. Called after the GPU has finished all of them.
    pub fn clear_in_flight(&mut self) {
        self.in_flight.clear();
    }
}

fn entry(binding: u32, buffer: &wgpu::Buffer, offset: u64, size: u64) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset,
            size: wgpu::BufferSize::new(size),
        }),
    }
}
