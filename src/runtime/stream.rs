//! The command stream: work is recorded, and submitted when there is enough of it.
//!
//! One compute pass stays open for as long as possible. Parameters and small uploads are collected on
//! the host and written with one `queue.write_buffer` each right before the submission, which the
//! queue executes ahead of the recorded commands and after everything submitted earlier. So no buffer
//! that recorded work still needs is ever overwritten.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::memory::Pool;
use super::profile::Profiler;
use super::{Interface, ParamsIn};

/// Uniform offsets are multiples of this, the largest alignment any adapter asks for.
const PARAMS_ALIGN: usize = 256;
/// The bytes of parameters that a kernel can see.
pub(crate) const PARAMS_SIZE: usize = 512;
/// Room for the parameters of one submission.
const PARAMS_ROOM: usize = 256 << 10;
/// Room for the small uploads of one submission.
const UPLOAD_ROOM: usize = 1 << 20;
/// A submission holds at most this many dispatches ...
const MAX_DISPATCHES: usize = 128;
/// ... and about this many operations: some hundred milliseconds on a slow GPU, far from any watchdog.
const MAX_WORK: u64 = 1 << 34;
/// The host may be this many submissions ahead of the GPU. Past that it waits for the oldest, since
/// every submission holds memory of the driver.
const MAX_IN_FLIGHT: usize = 64;
/// Bind groups kept in each of the two generations of the cache.
const BIND_GROUPS: usize = 2048;

/// Identifies a bind group: its layout and each buffer's id, offset and size.
type BindKey = (Interface, SmallVec<[(u64, u64, u64); 6]>);

pub(crate) struct Stream {
    encoder: Option<wgpu::CommandEncoder>,
    pass: Option<wgpu::ComputePass<'static>>,
    params: wgpu::Buffer,
    params_host: Vec<u8>,
    uploads: wgpu::Buffer,
    uploads_host: Vec<u8>,
    dispatches: usize,
    work: u64,
    in_flight: VecDeque<wgpu::SubmissionIndex>,
    /// Whose buffers the recorded work names.
    pool: Arc<Pool>,
    young: FxHashMap<BindKey, wgpu::BindGroup>,
    old: FxHashMap<BindKey, wgpu::BindGroup>,
    /// Set while a profile is taken.
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
    /// Estimated operations, to bound how long a submission runs.
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
            // The last parameters may sit at the very end, and a binding is always PARAMS_SIZE long.
            params: buffer("params", PARAMS_ROOM + PARAMS_SIZE, wgpu::BufferUsages::UNIFORM),
            params_host: Vec::with_capacity(PARAMS_ROOM),
            uploads: buffer("uploads", UPLOAD_ROOM, wgpu::BufferUsages::COPY_SRC),
            uploads_host: Vec::new(),
            dispatches: 0,
            work: 0,
            in_flight: VecDeque::new(),
            pool,
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            profiler: None,
        }
    }

    /// Records one dispatch.
    pub fn dispatch(
        &mut self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        work: RecordedDispatch<'_>,
    ) {
        if self.dispatches >= MAX_DISPATCHES
            || self.work.saturating_add(work.work) > MAX_WORK
            || self.params_host.len() + PARAMS_SIZE > PARAMS_ROOM
            || self.profiler.as_ref().is_some_and(|profiler| profiler.is_full())
        {
            self.submit(device, queue);
        }
        let group = self.bind_group(device, &work);
        let uniform = work.interface.params == ParamsIn::Uniform;
        let offset = self.params_host.len() as u32;
        if uniform {
            self.params_host.extend_from_slice(work.params);
            let filled = self.params_host.len().next_multiple_of(PARAMS_ALIGN);
            self.params_host.resize(filled, 0);
        }
        let pass = self.open_pass(device, work.variant);
        pass.set_pipeline(work.pipeline);
        pass.set_bind_group(0, &group, if uniform { std::slice::from_ref(&offset) } else { &[] });
        if !uniform {
            pass.set_immediates(0, work.params);
        }
        pass.dispatch_workgroups(work.grid.0, work.grid.1, work.grid.2);
        self.dispatches += 1;
        self.work += work.work;
    }

    fn bind_group(
        &mut self,
        device: &wgpu::Device,
        work: &RecordedDispatch<'_>,
    ) -> wgpu::BindGroup {
        let slices = || work.inputs.iter().chain(work.outputs);
        let key: BindKey =
            (work.interface, slices().map(|s| (s.buffer.id, s.offset, s.size)).collect());
        if let Some(group) = self.young.get(&key) {
            return group.clone();
        }
        let group = self.old.remove(&key).unwrap_or_else(|| {
            let mut entries: SmallVec<[wgpu::BindGroupEntry<'_>; 7]> = SmallVec::new();
            if work.interface.params == ParamsIn::Uniform {
                entries.push(entry(0, &self.params, 0, PARAMS_SIZE as u64));
            }
            for slice in slices() {
                entries.push(entry(
                    entries.len() as u32,
                    &slice.buffer.raw,
                    slice.offset,
                    slice.size,
                ));
            }
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: work.layout,
                entries: &entries,
            })
        });
        if self.young.len() >= BIND_GROUPS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, group.clone());
        group
    }

    /// Forgets the cached bind groups, which keep the buffers they name alive.
    pub fn forget_bind_groups(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// The open pass; while a profile is taken, a pass of its own for the dispatch of `variant`.
    fn open_pass(
        &mut self,
        device: &wgpu::Device,
        variant: &super::Variant,
    ) -> &mut wgpu::ComputePass<'static> {
        let timestamp_writes = self.profiler.as_mut().map(|profiler| {
            self.pass = None;
            profiler.next(variant)
        });
        let encoder = self.encoder.get_or_insert_with(|| {
            device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
        });
        self.pass.get_or_insert_with(|| {
            let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
            encoder.begin_compute_pass(&descriptor).forget_lifetime()
        })
    }

    /// The open encoder, outside of any pass: for copies.
    pub fn encoder(&mut self, device: &wgpu::Device) -> &mut wgpu::CommandEncoder {
        self.pass = None;
        self.encoder.get_or_insert_with(|| {
            device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
        })
    }

    /// Writes `data` to `slice`, in order with the recorded work. False when there is no memory to pass it
    /// through.
    pub fn upload(
        &mut self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        slice: &super::Allocation,
        data: &[u8],
    ) -> bool {
        let padded = data.len().next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT as usize);
        if padded > UPLOAD_ROOM / 4 {
            // Everything recorded so far goes first; then the queue's own order is the right one.
            self.submit(device, queue);
            let view = wgpu::BufferSize::new(padded as u64)
                .and_then(|len| queue.write_buffer_with(&slice.buffer.raw, slice.offset, len));
            return match view {
                Some(mut view) => {
                    view.slice(..data.len()).copy_from_slice(data);
                    true
                }
                None => false,
            };
        }
        if self.uploads_host.len() + padded > UPLOAD_ROOM {
            self.submit(device, queue);
        }
        let from = self.uploads_host.len() as u64;
        self.uploads_host.extend_from_slice(data);
        self.uploads_host.resize(from as usize + padded, 0);
        let uploads = self.uploads.clone();
        self.encoder(device).copy_buffer_to_buffer(
            &uploads,
            from,
            &slice.buffer.raw,
            slice.offset,
            padded as u64,
        );
        true
    }

    /// Hands the recorded work to the GPU. Waits for nothing unless the host is far ahead.
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
        if !self.params_host.is_empty() {
            queue.write_buffer(&self.params, 0, &self.params_host);
            self.params_host.clear();
        }
        if !self.uploads_host.is_empty() {
            queue.write_buffer(&self.uploads, 0, &self.uploads_host);
            self.uploads_host.clear();
        }
        self.in_flight.push_back(queue.submit([encoder.finish()]));
        self.pool.destroy_retired();
        if self.in_flight.len() > MAX_IN_FLIGHT {
            let oldest = self.in_flight.pop_front();
            let _ = device.poll(wgpu::PollType::Wait { submission_index: oldest, timeout: None });
        } else {
            // Lets wgpu take back the staging memory of finished submissions.
            let _ = device.poll(wgpu::PollType::Poll);
        }
    }

    /// Called once the GPU is known to have finished everything submitted.
    pub fn finish_all(&mut self) {
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
