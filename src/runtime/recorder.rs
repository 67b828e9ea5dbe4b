//! The recorder: records commands, in batches that the submitter submits.
//!
//! One compute pass stays open for as long as possible. Parameters and small uploads are collected
//! on the host. Right before a submission, one `queue.write_buffer` writes all parameters and
//! another writes all uploads. The queue executes these writes after all earlier submissions and
//! before the recorded commands, so data that submitted commands still need is not overwritten.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::allocation::Allocation;
use super::allocator::ALIGN;
use super::compiler::{Interface, Plan};
use super::debug_groups::DebugGroups;
use super::events::Event;
use super::gpu::{Buffer, Gpu};
use super::origin::current_op;
use super::params::{LAUNCH_ALIGN, PARAMS_SIZE};
use super::reports::Slot;
use super::stall::Largest;
use super::submitter::{Batch, Progress, Submitted, Submitter};
use super::taint::Taint;
use super::timestamps::Profiler;
use super::{ParamsBinding, RuntimeError};
use crate::device::AdapterKind;

/// Alignment of dynamic uniform offsets: the largest that any adapter requires.
const PARAMS_ALIGN: usize = 256;
/// Capacity for the parameters of one submission, in bytes.
const PARAMS_CAPACITY: usize = 256 << 10;
/// Capacity for the small uploads of one submission, in bytes.
const UPLOADS_CAPACITY: usize = 1 << 20;
/// Uploads of at most this many bytes are collected; larger ones are written at once.
pub(crate) const SMALL_UPLOAD: usize = UPLOADS_CAPACITY / 4;
/// Number of dispatches in the first submission after a wait. The GPU starts early.
const MIN_DISPATCHES: usize = 64;
/// Number of dispatches in a submission once the GPU is busy. Larger submissions cost the host
/// less for each dispatch.
const MAX_DISPATCHES: usize = 512;
/// Maximum number of bind groups in each of the two generations of the cache.
const MAX_BIND_GROUPS: usize = 8192;
/// Maximum number of workgroups in one dimension of a grid: the default limit of WebGPU.
pub(crate) const MAX_GROUPS: u64 = 65_535;

/// Cache key of a bind group: interface, and id, offset and size of the buffer of each binding.
type BindGroupKey = (Interface, SmallVec<[(u64, u32, u32); 6]>);

/// The operands and the size of a kernel launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchOperands<'a> {
    pub inputs: &'a [&'a Allocation],
    pub outputs: &'a [&'a Allocation],
    /// What is read besides the inputs: memory in the buffers of the outputs.
    pub also_read: &'a [&'a Allocation],
    /// What is written: the outputs, or memory in their buffers.
    pub written: &'a [&'a Allocation],
    /// Where the kernel reports indices, if it does: the last operand.
    pub report: Option<&'a Slot>,
    /// As in [`Dispatch`](super::Dispatch).
    pub separate: &'a [(usize, usize)],
    pub params: &'a [u8],
    pub groups: u64,
    /// Approximate number of operations.
    pub work: u64,
    /// The largest binding in bytes, a multiple of [`ALIGN`].
    pub max_binding: u64,
}

impl LaunchOperands<'_> {
    /// Adds the launches with indices on which the operands depend, and this one, to the taints of the results.
    fn taint_results(&self) {
        let Self { inputs, also_read, written, separate, report, .. } = *self;
        let mut report = report.and_then(|slot| slot.report.as_ref());
        if separate.is_empty() {
            for memory in written {
                // The launch may keep some of the old elements.
                for read in inputs.iter().chain(also_read).chain(written) {
                    memory.taint().merge(read.taint());
                }
                report.iter().for_each(|report| memory.taint().add(report));
            }
            return;
        }
        let mut also_read = also_read;
        // A result may overwrite what another needs.
        let taints: SmallVec<[Taint; 4]> = separate
            .iter()
            .map(|&(reads, _)| {
                let (read, taint) = (also_read.split_off(..reads), Taint::default());
                read.unwrap_or_default().iter().for_each(|read| taint.merge(read.taint()));
                report.take().iter().for_each(|report| taint.add(report));
                taint
            })
            .collect();
        let mut written = written.iter();
        for (&(_, writes), taint) in separate.iter().zip(&taints) {
            written.by_ref().take(writes).for_each(|memory| memory.taint().replace(taint));
        }
    }
}

/// Some of the workgroups of a launch.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// The first workgroup.
    first: u64,
    groups: u64,
    /// Approximate number of operations.
    work: u64,
}

/// The recorded commands of a device, and its submissions in flight.
pub(crate) struct Recorder {
    encoder: Option<wgpu::CommandEncoder>,
    pass: Option<wgpu::ComputePass<'static>>,
    /// The plan whose pipeline is set in the pass.
    current_plan: Option<u32>,
    /// The bind group that is set in the pass, unless it has dynamic offsets.
    current_group: Option<BindGroupKey>,
    params: wgpu::Buffer,
    /// Parameters of the recorded dispatches, written to `params` before the submission.
    pending_params: Vec<u8>,
    uploads: wgpu::Buffer,
    /// Data of the recorded small uploads, written to `uploads` before the submission.
    pending_uploads: Vec<u8>,
    /// Number of recorded dispatches.
    dispatches: usize,
    /// Number of dispatches after which the commands are submitted.
    max_dispatches: usize,
    /// Approximate number of recorded operations.
    work: u64,
    /// The largest of the recorded dispatches.
    largest: Largest,
    /// Approximate number of operations that bounds a dispatch and a submission.
    max_work: u64,
    submitter: Submitter,
    /// Whether commands were submitted since the last call of [`overdue`](Self::overdue).
    submitted: bool,
    /// Bind groups of the current generation of the cache.
    young_bind_groups: FxHashMap<BindGroupKey, wgpu::BindGroup>,
    /// Bind groups of the previous generation of the cache.
    old_bind_groups: FxHashMap<BindGroupKey, wgpu::BindGroup>,
    /// Present while a profile is taken.
    pub profiler: Option<Box<Profiler>>,
    /// Present if launches are in debug groups.
    debug_groups: Option<DebugGroups>,
}

impl Recorder {
    pub fn new(gpu: &Arc<Gpu>) -> Self {
        let buffer = |label, size: usize, usage| {
            gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size: size as u64,
                usage: usage | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        };
        Self {
            encoder: None,
            pass: None,
            current_plan: None,
            current_group: None,
            // A binding is always `PARAMS_SIZE` long and may start close to the end of
            // `PARAMS_CAPACITY`.
            params: buffer("params", PARAMS_CAPACITY + PARAMS_SIZE, wgpu::BufferUsages::UNIFORM),
            pending_params: Vec::with_capacity(PARAMS_CAPACITY),
            uploads: buffer("uploads", UPLOADS_CAPACITY, wgpu::BufferUsages::COPY_SRC),
            pending_uploads: Vec::new(),
            dispatches: 0,
            max_dispatches: MIN_DISPATCHES,
            work: 0,
            largest: Largest::default(),
            max_work: max_work(gpu.info.kind),
            submitter: Submitter::new(gpu),
            submitted: false,
            young_bind_groups: FxHashMap::default(),
            old_bind_groups: FxHashMap::default(),
            profiler: None,
            debug_groups: DebugGroups::new(),
        }
    }

    /// Records a kernel launch, in parts if it may run too long. All operands must be placed.
    ///
    /// Returns an error if wgpu refuses a buffer of the program among the operands. Then no result is written.
    pub fn dispatch(
        &mut self,
        gpu: &Gpu,
        plan: &Plan,
        operands: &LaunchOperands<'_>,
    ) -> Result<(), RuntimeError> {
        let LaunchOperands { written, groups, work, .. } = *operands;
        gpu.observers.notify(|| Event::Dispatch { kernel: &plan.variant, work });
        let parts = work.div_ceil(self.max_work).clamp(1, groups);
        let step = exact_groups(groups.div_ceil(parts));
        let work = work / groups.div_ceil(step);
        let mut first = 0;
        while first < groups {
            let part = Part { first, groups: step.min(groups - first), work };
            self.dispatch_part(gpu, plan, operands, part)?;
            first += part.groups;
        }
        let serial = gpu.serial();
        written.iter().for_each(|memory| memory.set_written(serial));
        operands.taint_results();
        Ok(())
    }

    /// Records a part of a launch. Submits the earlier commands first if a limit would be exceeded.
    fn dispatch_part(
        &mut self,
        gpu: &Gpu,
        plan: &Plan,
        operands: &LaunchOperands<'_>,
        part: Part,
    ) -> Result<(), RuntimeError> {
        if self.dispatches >= self.max_dispatches
            || (self.dispatches > 0 && self.work.saturating_add(part.work) > self.max_work)
            || self.pending_params.len() + PARAMS_SIZE > PARAMS_CAPACITY
            || self.profiler.as_ref().is_some_and(|profiler| profiler.is_full())
        {
            self.submit_later(gpu);
        }
        let bindings = bindings(operands, plan.exact_bindings);
        let mut params: SmallVec<[u8; 256]> = SmallVec::from_slice(operands.params);
        params.resize(operands.params.len().next_multiple_of(LAUNCH_ALIGN), 0);
        params.extend_from_slice(&(part.first as u32).to_ne_bytes());
        for (binding, shift) in bindings.iter().zip(&plan.element_shifts) {
            let first_element = (binding.base >> shift) as u32;
            params.extend_from_slice(&first_element.to_ne_bytes());
        }
        let key = (plan.interface, bindings.iter().map(Binding::key).collect());
        let uniform = plan.interface.params == ParamsBinding::Uniform;
        let offset = self.pending_params.len() as u32;
        if uniform {
            self.pending_params.extend_from_slice(&params);
            let aligned = self.pending_params.len().next_multiple_of(PARAMS_ALIGN);
            self.pending_params.resize(aligned, 0);
        }
        // A new pass, as for a profile, has no group.
        let is_set = self.pass.is_some()
            && self.profiler.is_none()
            && self.current_group.as_ref() == Some(&key);
        let bind_group = match is_set && !uniform {
            true => None,
            false => {
                let has_foreign = operands.inputs.iter().any(|input| input.is_foreign());
                Some(self.bind_group(gpu, plan, &key, &bindings, has_foreign)?)
            }
        };
        self.open_pass(gpu, plan, operands, part);
        let Some(pass) = &mut self.pass else { return Ok(()) };
        if self.current_plan != Some(plan.id) {
            pass.set_pipeline(&plan.pipeline);
            self.current_plan = Some(plan.id);
        }
        if let Some(bind_group) = bind_group {
            let offsets: &[u32] = if uniform { std::slice::from_ref(&offset) } else { &[] };
            pass.set_bind_group(0, &bind_group, offsets);
            self.current_group = Some(key);
        }
        if !uniform {
            pass.set_immediates(0, &params);
        }
        if let Some(groups) = &mut self.debug_groups {
            groups.enter(pass);
        }
        let (x, y, z) = fold_grid(part.groups);
        pass.dispatch_workgroups(x, y, z);
        self.dispatches += 1;
        self.work += part.work;
        self.largest.see(current_op(), plan.variant.source.name, part.work);
        Ok(())
    }

    /// Returns the bind group with a key from the cache, or creates it.
    ///
    /// A full young generation replaces the old one. A bind group found in the old generation moves
    /// to the young one.
    fn bind_group(
        &mut self,
        gpu: &Gpu,
        plan: &Plan,
        key: &BindGroupKey,
        bindings: &[Binding<'_>],
        has_foreign: bool,
    ) -> Result<wgpu::BindGroup, RuntimeError> {
        if let Some(bind_group) = self.young_bind_groups.get(key) {
            return Ok(bind_group.clone());
        }
        let create = || {
            let mut entries: SmallVec<[wgpu::BindGroupEntry<'_>; 9]> = SmallVec::new();
            if plan.interface.params == ParamsBinding::Uniform {
                entries.push(entry(0, &self.params, 0, PARAMS_SIZE as u64));
            }
            for Binding { buffer, offset, size, .. } in bindings {
                entries.push(entry(entries.len() as u32, &buffer.raw, *offset, *size));
            }
            let layout = &plan.bind_group_layout;
            let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
            gpu.create_bind_group(&descriptor, has_foreign)
        };
        let bind_group = match self.old_bind_groups.remove(key) {
            Some(bind_group) => bind_group,
            None => create()?,
        };
        if self.young_bind_groups.len() >= MAX_BIND_GROUPS {
            self.old_bind_groups = std::mem::take(&mut self.young_bind_groups);
        }
        self.young_bind_groups.insert(key.clone(), bind_group.clone());
        Ok(bind_group)
    }

    /// Records a copy of one placed allocation to another, in other buffers.
    pub fn copy(&mut self, gpu: &Gpu, from: &Allocation, to: &Allocation) {
        let (Some(source), Some(target)) = (from.placement(), to.placement()) else { return };
        self.copy_encoder(gpu).copy_buffer_to_buffer(
            &source.buffer.raw,
            source.offset,
            &target.buffer.raw,
            target.offset,
            source.size.min(target.size),
        );
        to.set_written(gpu.serial());
        to.taint().merge(from.taint());
    }

    /// Destroys retired buffers. The commands that use them must have been submitted.
    ///
    /// Dropping a buffer is not enough: cached bind groups keep it alive, and a browser frees it
    /// only at the next garbage collection.
    pub fn destroy(&mut self, retired: &[Arc<Buffer>]) {
        if retired.is_empty() {
            return;
        }
        let ids: Vec<u64> = retired.iter().map(|buffer| buffer.id).collect();
        self.forget(&ids);
        retired.iter().for_each(|buffer| buffer.raw.destroy());
    }

    /// Drops the cached bind groups with these buffers.
    pub fn forget(&mut self, ids: &[u64]) {
        let alive =
            |(_, bindings): &BindGroupKey| bindings.iter().all(|(id, _, _)| !ids.contains(id));
        self.young_bind_groups.retain(|key, _| alive(key));
        self.old_bind_groups.retain(|key, _| alive(key));
    }

    /// Opens a pass if none is open. While a profile is taken, begins a new pass for each dispatch.
    fn open_pass(&mut self, gpu: &Gpu, plan: &Plan, operands: &LaunchOperands<'_>, part: Part) {
        if self.profiler.is_some() {
            self.end_pass();
        }
        let timestamp_writes = self.profiler.as_mut().map(|profiler| {
            let read = operands.inputs.iter().chain(operands.also_read);
            let memory = read.chain(operands.written).copied();
            profiler.timestamp_writes(plan, memory, operands.groups, (part.groups, part.work))
        });
        if self.pass.is_some() {
            return;
        }
        (self.current_plan, self.current_group) = (None, None);
        let encoder = self.encoder.get_or_insert_with(|| {
            gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
        });
        let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
        self.pass = Some(encoder.begin_compute_pass(&descriptor).forget_lifetime());
    }

    /// Ends the open pass, if there is one.
    fn end_pass(&mut self) {
        if let (Some(groups), Some(pass)) = (&mut self.debug_groups, &mut self.pass) {
            groups.close(pass, 0);
        }
        self.pass = None;
    }

    /// Ends the open pass and returns the encoder, for copies.
    pub fn copy_encoder(&mut self, gpu: &Gpu) -> &mut wgpu::CommandEncoder {
        self.end_pass();
        self.encoder.get_or_insert_with(|| {
            gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
        })
    }

    /// Records an upload of at most [`SMALL_UPLOAD`] bytes to a placed allocation, in order with
    /// the recorded commands.
    pub fn upload(&mut self, gpu: &Gpu, allocation: &Allocation, data: &[u8]) {
        let Some(placement) = allocation.placement() else { return };
        let padded = data.len().next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT as usize);
        if self.pending_uploads.len() + padded > UPLOADS_CAPACITY {
            self.submit_later(gpu);
        }
        let offset = self.pending_uploads.len() as u64;
        self.pending_uploads.extend_from_slice(data);
        self.pending_uploads.resize(offset as usize + padded, 0);
        let uploads = self.uploads.clone();
        self.copy_encoder(gpu).copy_buffer_to_buffer(
            &uploads,
            offset,
            &placement.buffer.raw,
            placement.offset,
            padded as u64,
        );
        allocation.set_written(gpu.serial());
    }

    /// Submits the recorded commands, if there are any. Waits until all earlier batches are
    /// submitted, in any case.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver does not return from a submission.
    pub fn submit(&mut self, gpu: &Gpu) -> Result<Submitted, RuntimeError> {
        self.check()?;
        let Some(batch) = self.take_batch(gpu) else {
            self.submitter.drain()?;
            return Ok(Submitted { index: None, serial: gpu.serial(), has_failed: false });
        };
        self.submitted = true;
        self.submitter.submit(batch)
    }

    /// Returns an error while the driver does not return from a submission.
    pub fn check(&self) -> Result<(), RuntimeError> {
        self.submitter.check()
    }

    /// Submits the recorded commands soon.
    fn submit_later(&mut self, gpu: &Gpu) {
        if let Some(batch) = self.take_batch(gpu) {
            self.submitter.submit_later(batch);
            self.submitted = true;
        }
    }

    /// Takes the recorded commands, if there are any.
    fn take_batch(&mut self, gpu: &Gpu) -> Option<Batch> {
        self.end_pass();
        let mut encoder = self.encoder.take()?;
        let dispatches = std::mem::take(&mut self.dispatches);
        self.work = 0;
        self.max_dispatches = (self.max_dispatches * 2).min(MAX_DISPATCHES);
        if let Some(profiler) = &mut self.profiler {
            profiler.resolve(&gpu.device, &mut encoder);
        }
        gpu.observers.notify(|| Event::Submit { dispatches });
        let take = |pending: &mut Vec<u8>| {
            let capacity = pending.len();
            std::mem::replace(pending, Vec::with_capacity(capacity))
        };
        let writes = [
            (self.params.clone(), take(&mut self.pending_params)),
            (self.uploads.clone(), take(&mut self.pending_uploads)),
        ];
        let largest = std::mem::take(&mut self.largest);
        Some(Batch { encoder, writes, serial: gpu.begin_submission(), largest })
    }

    /// Returns what the caller must wait for before it records more, without the lock.
    pub fn overdue(&mut self) -> Option<Arc<Progress>> {
        std::mem::take(&mut self.submitted).then(|| self.submitter.progress())
    }

    /// Forgets the submissions in flight. Called when the host waits until all of them have
    /// finished.
    pub fn forget_in_flight(&mut self) {
        self.submitter.forget_in_flight();
        self.max_dispatches = MIN_DISPATCHES;
    }
}

/// How an allocation is bound.
struct Binding<'a> {
    buffer: &'a Buffer,
    /// The bound range, in bytes.
    offset: u64,
    size: u64,
    /// Where the allocation starts in the bound range.
    base: u64,
}

impl Binding<'_> {
    /// Returns the part of a cache key: offset and size are counted in units of [`ALIGN`].
    fn key(&self) -> (u64, u32, u32) {
        (self.buffer.id, (self.offset / ALIGN) as u32, self.size.div_ceil(ALIGN) as u32)
    }
}

/// Returns the bindings of placed operands. Whole buffers are bound, so that operands in the same
/// pages share bind groups; with `exact`, or in buffers larger than a binding, exactly their ranges.
fn bindings<'a>(operands: &LaunchOperands<'a>, exact: bool) -> SmallVec<[Binding<'a>; 6]> {
    let placements =
        operands.inputs.iter().chain(operands.outputs).filter_map(|operand| operand.placement());
    let ranges = placements
        .map(|placement| (&*placement.buffer, placement.offset, placement.size))
        .chain(operands.report.map(|slot| (&*slot.buffer, slot.offset, Slot::SIZE)));
    ranges
        .map(|(buffer, start, size)| match exact || buffer.raw.size() > operands.max_binding {
            true => {
                Binding { buffer, offset: start, size: size.min(operands.max_binding), base: 0 }
            }
            false => Binding { buffer, offset: 0, size: buffer.raw.size(), base: start },
        })
        .collect()
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

/// Returns the approximate number of operations that bounds a dispatch and a submission.
///
/// Drivers reset a GPU that is busy for longer than about two seconds. The bound is a quarter of a
/// second for a slow GPU of its class, which reaches a tenth of its peak.
fn max_work(kind: AdapterKind) -> u64 {
    match kind {
        AdapterKind::Discrete => 1 << 37,
        _ => 1 << 34,
    }
}

/// Rounds up a number of workgroups to one that a grid holds exactly. Workgroups beyond a part of a
/// launch would repeat those of the next part.
fn exact_groups(groups: u64) -> u64 {
    if groups <= MAX_GROUPS { groups } else { groups.next_multiple_of(MAX_GROUPS) }
}

/// Folds a number of workgroups into a 3D grid with at least that many workgroups.
fn fold_grid(groups: u64) -> (u32, u32, u32) {
    if groups <= MAX_GROUPS {
        return (groups as u32, 1, 1);
    }
    let rows = groups.div_ceil(MAX_GROUPS);
    if rows <= MAX_GROUPS {
        // Rows of equal length leave few surplus workgroups.
        return (groups.div_ceil(rows) as u32, rows as u32, 1);
    }
    (MAX_GROUPS as u32, MAX_GROUPS as u32, rows.div_ceil(MAX_GROUPS) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total((x, y, z): (u32, u32, u32)) -> u64 {
        u64::from(x) * u64::from(y) * u64::from(z)
    }

    #[test]
    fn folded_grid_has_at_least_the_requested_workgroups() {
        for groups in [1, 65_535, 65_536, 1_000_003, MAX_GROUPS * 65_535 + 1] {
            let (x, y, z) = fold_grid(groups);
            assert!(total((x, y, z)) >= groups && x.max(y).max(z) <= 65_535, "{groups}");
        }
        assert_eq!(fold_grid(65_536), (32_768, 2, 1));
    }

    #[test]
    fn a_grid_holds_a_part_of_a_launch_exactly() {
        for groups in [1, 65_535, 65_536, 1_000_003] {
            let exact = exact_groups(groups);
            assert!(exact >= groups && total(fold_grid(exact)) == exact, "{groups}");
        }
    }
}
