//! An opened device: memory, kernels, commands and transfers.
//!
//! This module handles buffers and shaders; shapes are handled by the layers above. Its parts:
//!
//! - `gpu`: the wgpu device, its queue and its health;
//! - `allocator`: places allocations in buffers that are kept for reuse;
//! - `compiler`: makes pipelines from kernels;
//! - `recorder`: records commands in batches;
//! - `submitter`: submits the batches, natively on a thread of its own (`worker`);
//! - `upload`, `readback`: transfers.
//!
//! [`Runtime::dispatch`] records a kernel launch. A launch takes one lock, that of the `State`. It
//! is not held while a kernel is compiled or while the host waits for the GPU, which it does in
//! [`Runtime::read`], in [`Runtime::sync`], and when too many submissions are in flight.

mod allocation;
mod allocator;
mod bytes;
mod cache;
mod callers;
mod choices;
mod compiler;
mod debug_groups;
mod deferred;
mod demand;
pub(crate) mod embed;
mod error;
mod events;
mod faults;
mod foreign;
mod gpu;
mod kernel;
mod mapping;
mod observed;
mod opened;
mod operands;
mod origin;
mod panics;
mod params;
mod pipeline_cache;
mod profile;
mod readback;
mod recorder;
mod reports;
mod shader;
mod stall;
mod status;
mod submitter;
mod submitting;
mod sync;
mod taint;
mod timestamps;
mod tokens;
mod upload;
mod waits;
mod worker;

use std::any::TypeId;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::device::{AdapterInfo, AdapterKind, CAN_BLOCK, OpenDevice, Units};
use crate::variables;
use allocation::Returns;
use allocator::{ALIGN, Allocator, PAGE_SIZE, Placed, Placement};
use compiler::{KernelCompiler, Plan};
use deferred::DeferredWork;
use gpu::{Buffer, Gpu};
pub(crate) use params::LAUNCH_ALIGN;
use readback::ReadbackBuffers;
pub(crate) use recorder::MAX_GROUPS;
#[cfg(feature = "train")]
pub(crate) use recorder::SMALL_UPLOAD;
use recorder::{LaunchOperands, Recorder};
use reports::{Outcomes, Reports, Slot};
use submitter::{MAX_IN_FLIGHT, Progress, Submitted};
#[cfg(feature = "train")]
pub(crate) use upload::Upload;
use upload::UploadBuffers;

pub use allocation::Allocation;
pub(crate) use allocator::ALIGN as PART_ALIGN;
pub(crate) use allocator::PeakId;
pub use allocator::{Location, MemoryUsage, SizeRange};
pub use bytes::Bytes;
pub(crate) use cache::read_limited;
pub use cache::{CACHE_VARIABLE, cache_folder, check_writable, write_file};
pub use choices::Choices;
pub use deferred::Deferred;
pub(crate) use demand::Demand;
pub(crate) use embed::wgsl;
pub use error::RuntimeError;
pub use events::{
    Event, Observation, Observer, Scope, current_scope, describe_operands, is_captured, scope,
};
pub(crate) use events::{host_observers, is_observed};
pub use faults::Fault;
pub(crate) use kernel::{Compilation, div_up, variants_of};
pub use kernel::{Expr, Kernel, KernelKey};
pub(crate) use observed::ObservedDevice;
pub use operands::{DeclaredOperand, ElementCode, EpilogueCode, PrologueCode};
pub use origin::{
    Origin, begin_op, current_op, current_origin, record_lines, set_current_op, set_origin,
};
pub use panics::{OpPanic, attempt, panic_message};
pub use params::{ParamField, Params};
pub(crate) use profile::CaptureError;
#[cfg(feature = "train")]
pub(crate) use readback::StartedRead;
pub(crate) use reports::Flows;
pub use shader::{
    Compiler, Def, Expansion, Fragment, ParamsBinding, Source, Target, Variant, expand,
};
pub use status::{DeviceStatus, SharedStatus, Status, share_status, shared_statuses};
pub use taint::IndexedAxis;
pub(crate) use timestamps::{Captured, CapturedKernel};
pub(crate) use tokens::tokens;
use waits::{Wait, Waiting};
pub use waits::{show_waits, waits_on_thread};

/// The matrix units that a kernel passed its test with, if any, once it was tested.
pub(crate) type TestedUnits = Arc<OnceLock<Option<Units>>>;

/// Operations after which a software adapter counts as warmed up: about a second of work.
/// The software adapters of browsers are slower.
const WARM_UP_WORK: u64 = if CAN_BLOCK { 1 << 33 } else { 1 << 30 };

/// How the memory of a device is used. Sizes are in bytes.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The adapter's name.
    pub device: String,
    /// Whether this is the CPU device, whose tensors are in the host's memory: nothing is counted, all is zero.
    pub of_host: bool,
    /// How much memory is in use and reserved.
    pub usage: MemoryUsage,
    /// The live allocations by size.
    pub sizes: Vec<SizeRange>,
    /// The largest allocation that needs no new buffer.
    pub largest_free: u64,
    /// The maximum of `usage.reserved`, if one was set.
    pub limit: Option<u64>,
    /// The size of all buffers and other resources of the device, if wgpu knows it. It includes
    /// those for transfers and parameters.
    pub driver_allocated: Option<u64>,
    /// The memory that wgpu holds for them, in larger blocks.
    pub driver_reserved: Option<u64>,
    /// The device's memory, if the API reports it.
    pub device_memory: Option<u64>,
    /// The number of operations, of all devices, that wait for a backward pass and keep their operands until then.
    pub waiting_nodes: usize,
}

/// One kernel launch.
pub struct Dispatch<'a> {
    /// The key of the kernel.
    pub key: KernelKey,
    /// Returns the kernel, which is compiled at its first launch.
    pub kernel: &'a dyn Fn() -> Variant,
    /// Read-only memory, in binding order.
    pub inputs: &'a [&'a Allocation],
    /// Memory that is written, or read and written. Its bindings follow those of the inputs.
    pub outputs: &'a [&'a Allocation],
    /// The kernel's `Params` struct as bytes, less than 1024.
    pub params: &'a [u8],
    /// Number of workgroups. They are folded into a 3D grid. In the shader, `group_index` computes
    /// the linear index.
    pub groups: u64,
    /// Approximate number of operations, used to bound how long a dispatch and a submission run.
    pub work: u64,
    /// The axes that the kernel's indices address, if it reports indices outside them: the shader
    /// includes `lib/report`.
    pub indexed_axes: Option<&'a [IndexedAxis]>,
    /// Memory that is read besides the inputs, in the buffers of the operands: the kernel finds it
    /// by its [`Location`].
    pub also_read: &'a [&'a Allocation],
    /// If not empty, the memory that is written: the outputs only name the buffers in which it is.
    pub also_written: &'a [&'a Allocation],
    /// If not empty, `also_read` and `also_written` list what groups of results depend on, and their sizes are these:
    /// also what a result overwrites, if it depends on it. The first group has the indices, if the kernel reports
    /// some.
    pub separate: &'a [(usize, usize)],
}

/// A launch that was recorded.
#[must_use = "`Runtime::finish_dispatch` checks it"]
pub struct Recorded {
    /// The submission that was current when the launch began.
    first_serial: u64,
    /// The submissions that the host waits for, if there are too many.
    overdue: Option<Arc<Progress>>,
    /// Whether the kernel reports indices.
    reports: bool,
}

/// What a launch needs under the lock.
struct State {
    allocator: Allocator<Arc<Buffer>>,
    recorder: Recorder,
    reports: Reports,
    plans: FxHashMap<KernelKey, Arc<Plan>>,
}

/// An opened device.
pub struct Runtime {
    gpu: Arc<Gpu>,
    state: Mutex<State>,
    returns: Arc<Returns>,
    compiler: KernelCompiler,
    upload_buffers: UploadBuffers,
    readback_buffers: ReadbackBuffers,
    outcomes: Outcomes,
    deferred: DeferredWork,
    /// Memory for bindings that a kernel does not use: see [`Runtime::spare`].
    spares: Mutex<Vec<Arc<Allocation>>>,
    tuning_cache: Choices,
    /// See [`Runtime::tested_units`].
    tested_units: Mutex<FxHashMap<(TypeId, u32), TestedUnits>>,
    /// The largest binding in bytes, a multiple of [`ALIGN`].
    max_binding: u64,
    /// Approximate number of operations dispatched so far.
    work_dispatched: AtomicU64,
    /// Whether kernels for software adapters are used.
    software: bool,
    /// Whether the device counts as warmed up before it has done the work of a warm-up.
    skip_warm_up: AtomicBool,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("adapter", &self.gpu.name()).finish_non_exhaustive()
    }
}

/// Whether devices opened from now on compile shaders with all runtime checks.
static CHECKED: AtomicBool = AtomicBool::new(false);

/// Enables or disables all shader checks (bounds, loops, division, workgroup memory) for devices
/// opened from now on.
///
/// The environment variable `BURN_WGSL_CHECKED=1` enables them too. Checked shaders are slow; use
/// them for debugging.
pub fn check_shaders(enabled: bool) {
    CHECKED.store(enabled, Ordering::Relaxed);
}

/// The largest binding of devices opened from now on, in bytes.
static BINDING_LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Limits the bindings of devices opened from now on, in bytes, so that tests of larger tensors
/// need little memory. The limit is at least the size of a page, which small tensors share.
pub fn limit_bindings(bytes: u64) {
    BINDING_LIMIT.store(bytes.max(PAGE_SIZE), Ordering::Relaxed);
}

impl Runtime {
    /// Takes an open device. `generation` counts how often its adapter was opened, from 1.
    fn new(mut opened: OpenDevice, generation: u32) -> Self {
        // For tests: simulates a browser without subgroups.
        opened.info.features.subgroups &= !variables::NO_SUBGROUPS.is_on();
        let gpu = Arc::new(Gpu::new(opened, generation));
        let limits = &gpu.info.limits;
        let max_binding = limits.max_storage_binding_size.min(limits.max_buffer_size);
        // Metal has no limit of its own. Kernels compute offsets in 32 bits.
        let max_binding =
            max_binding.min(u32::MAX.into()).min(BINDING_LIMIT.load(Ordering::Relaxed)) / ALIGN
                * ALIGN;
        // For tests: `BURN_WGSL_AS_GPU=1` runs GPU kernels on a software adapter, slowly.
        let software = gpu.info.kind == AdapterKind::Software && !variables::AS_GPU.is_on();
        let checked = variables::CHECKED.is_on() || CHECKED.load(Ordering::Relaxed);
        let state = State {
            // Memory of other GPUs is the host's, and browsers do not report when there is none.
            allocator: Allocator::new(
                limits.max_buffer_size / ALIGN * ALIGN,
                CAN_BLOCK && gpu.info.kind == AdapterKind::Discrete,
            ),
            recorder: Recorder::new(&gpu),
            reports: Reports::new(),
            plans: FxHashMap::default(),
        };
        Self {
            state: Mutex::new(state),
            returns: Arc::new(Returns::new(gpu.observers.clone())),
            compiler: KernelCompiler::new(&gpu, checked, software),
            upload_buffers: UploadBuffers::default(),
            readback_buffers: ReadbackBuffers::default(),
            outcomes: Outcomes::default(),
            deferred: DeferredWork::default(),
            spares: Mutex::default(),
            tuning_cache: Choices::open(&gpu.info, "tuning"),
            tested_units: Mutex::default(),
            max_binding,
            work_dispatched: AtomicU64::new(0),
            software,
            skip_warm_up: AtomicBool::new(variables::WARM.is_on()),
            gpu,
        }
    }

    /// Returns the adapter info.
    pub fn info(&self) -> &AdapterInfo {
        &self.gpu.info
    }

    /// Returns the adapter's name; from the second opening on with the number of the opening.
    pub fn name(&self) -> String {
        self.gpu.name()
    }

    /// Returns whether kernels for software adapters are used.
    ///
    /// Barriers and workgroup memory are expensive on a software adapter. `BURN_WGSL_AS_GPU=1`
    /// makes this `false` on every adapter.
    pub fn is_software(&self) -> bool {
        self.software
    }

    /// Returns the approximate number of operations dispatched since the device was opened.
    pub fn work_dispatched(&self) -> u64 {
        self.work_dispatched.load(Ordering::Relaxed)
    }

    /// Returns whether the device is warmed up.
    ///
    /// Kernels that take long to compile, or that serve fewer cases, pay off only on a warmed-up
    /// device. The warm-up is a fixed amount of work, which takes a software adapter about a
    /// second. After [`skip_warm_up`](Self::skip_warm_up), or with
    /// `BURN_WGSL_WARM=1`, there is none.
    pub fn is_warmed_up(&self) -> bool {
        self.skip_warm_up.load(Ordering::Relaxed) || self.work_dispatched() > WARM_UP_WORK
    }

    /// Marks the device as warmed up.
    pub fn skip_warm_up(&self) {
        self.skip_warm_up.store(true, Ordering::Relaxed);
    }

    /// Returns the tuning results for this adapter.
    pub fn tuning_cache(&self) -> &Choices {
        &self.tuning_cache
    }

    /// Returns where the result of testing a kernel with matrix units is kept. `number` is its own among kernels of a
    /// type.
    pub(crate) fn tested_units(&self, kernel: TypeId, number: u32) -> TestedUnits {
        self.tested_units.lock().entry((kernel, number)).or_default().clone()
    }

    /// Returns the kernels that the driver refused in their fast form, with how they are compiled.
    pub fn refusals(&self) -> &Choices {
        self.compiler.refusals()
    }

    /// Returns how much memory is in use and reserved, and the peak.
    pub fn memory(&self) -> MemoryUsage {
        self.with_allocator(|allocator| allocator.usage())
    }

    /// Returns the memory in more detail.
    pub fn memory_report(&self) -> MemoryReport {
        let (usage, sizes, largest_free, limit) = self.with_allocator(|allocator| {
            let usage = allocator.usage();
            (usage, allocator.sizes(), allocator.largest_free(), allocator.cap())
        });
        let driver = self.gpu.device.generate_allocator_report();
        MemoryReport {
            device: self.name(),
            of_host: false,
            usage,
            sizes,
            largest_free,
            limit,
            driver_allocated: driver.as_ref().map(|report| report.total_allocated_bytes),
            driver_reserved: driver.as_ref().map(|report| report.total_reserved_bytes),
            device_memory: self.info().memory,
            waiting_nodes: 0,
        }
    }

    /// Resets the peak of [`memory`](Self::memory) to the memory in use now.
    pub fn reset_memory_peak(&self) {
        self.with_allocator(Allocator::reset_peak);
    }

    /// Begins to measure the maximum of the memory in use.
    pub(crate) fn begin_peak(&self) -> PeakId {
        self.with_allocator(Allocator::begin_peak)
    }

    /// Ends the measurement, and returns the maximum.
    pub(crate) fn end_peak(&self, id: PeakId) -> u64 {
        self.with_allocator(|allocator| allocator.end_peak(id))
    }

    /// Sets the maximum of the memory reserved for tensors, in bytes.
    pub fn set_memory_limit(&self, limit: Option<u64>) {
        self.with_allocator(|allocator| allocator.set_cap(limit));
    }

    fn with_allocator<R>(&self, work: impl FnOnce(&mut Allocator<Arc<Buffer>>) -> R) -> R {
        let mut state = self.state.lock();
        self.take_back(&mut state);
        work(&mut state.allocator)
    }

    /// Passes this device's events to an observer, until the result is dropped.
    pub fn observe(&self, observer: Arc<dyn Observer>) -> Observation {
        Observation::begin(&self.gpu.observers, observer)
    }

    /// The same. Also returns the bytes in use before the first event that is passed.
    pub fn observe_memory(&self, observer: Arc<dyn Observer>) -> (Observation, u64) {
        let mut state = self.state.lock();
        let _returned = self.returns.give_back(&mut state.allocator);
        // Nothing is placed or returned while both are locked.
        (self.observe(observer), state.allocator.usage().in_use)
    }

    /// Plans a fault after `successes` successes, for tests. Replaces the fault planned before.
    pub fn plan_fault(&self, fault: Fault, successes: u64) {
        self.gpu.faults.plan(fault, successes);
    }

    /// Cancels the planned fault. Returns whether there was one: it did not happen.
    pub fn cancel_fault(&self) -> bool {
        self.gpu.faults.cancel()
    }

    /// Destroys unused buffers, which returns their memory to the driver, until at most `target`
    /// bytes are reserved.
    pub fn trim(&self, target: u64) {
        let mut state = self.state.lock();
        self.take_back(&mut state);
        state.allocator.trim(target);
        // What runs keeps its memory.
        let _ = self.submit(&mut state);
        drop(state);
        self.gpu.reclaim();
        self.readback_buffers.trim();
    }

    /// Returns why the device was lost, if it was.
    pub(crate) fn lost(&self) -> Option<String> {
        self.gpu.lost_error().map(|error| error.to_string())
    }

    /// Returns whether the device was lost, or has an error to report.
    pub(crate) fn is_impaired(&self) -> bool {
        self.gpu.is_impaired()
    }

    /// Returns an error if the device was lost, and once for each error that it reported.
    pub(crate) fn check_usable(&self) -> Result<(), RuntimeError> {
        self.gpu.check()
    }

    /// Returns an error where the host cannot block, which is in a browser.
    pub(crate) fn check_can_block(&self) -> Result<(), RuntimeError> {
        self.gpu.check_can_block()
    }

    /// Allocates `bytes` bytes with undefined contents. The memory is placed when a command first
    /// uses it, or at once if it is larger than a binding.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` exceeds the largest buffer, the device was lost, or it is out of
    /// memory for an allocation that is larger than a binding.
    pub fn alloc(&self, bytes: u64) -> Result<Allocation, RuntimeError> {
        self.gpu.check()?;
        let limit = self.info().limits.max_buffer_size / ALIGN * ALIGN;
        if bytes > limit {
            return Err(RuntimeError::TooLarge { device: self.name(), requested: bytes, limit });
        }
        let allocation = Allocation::new(bytes, &self.returns);
        if bytes > self.max_binding {
            drop(self.place(self.state.lock(), &[&allocation], &[])?);
        }
        Ok(allocation)
    }

    /// Returns the largest binding in bytes. Kernels read and write larger allocations in
    /// parts.
    pub fn max_binding(&self) -> u64 {
        self.max_binding
    }

    /// Checks that a kernel can bind `bytes` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` exceeds the largest binding, or the device was lost.
    pub fn check_binding(&self, bytes: u64) -> Result<(), RuntimeError> {
        self.gpu.check()?;
        let limit = self.max_binding;
        if bytes > limit {
            let device = self.name();
            return Err(RuntimeError::TooLargeToBind { device, requested: bytes, limit });
        }
        Ok(())
    }

    /// Returns memory of one word in a buffer of its own, for a binding that a kernel does not use.
    /// Each index has other memory.
    ///
    /// # Errors
    ///
    /// Returns an error if the device is out of memory.
    pub fn spare(&self, index: usize) -> Result<Arc<Allocation>, RuntimeError> {
        const SIZE: u64 = 256;
        let mut spares = self.spares.lock();
        while spares.len() <= index {
            let buffer = self.gpu.create_tensor_buffer(SIZE);
            let buffer = buffer.ok_or_else(|| self.out_of_memory(SIZE))?;
            let spare = Allocation::new(4, &self.returns);
            spare.set_placement(Placement { buffer, offset: 0, size: SIZE, requested: 4 });
            spares.push(Arc::new(spare));
        }
        Ok(spares[index].clone())
    }

    /// Compiles a kernel with this many inputs and outputs, without launching it.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not compile on this device.
    pub fn compile(
        &self,
        variant: Variant,
        operands: (usize, usize),
        params_len: usize,
    ) -> Result<(), RuntimeError> {
        self.compiler.compile(&self.gpu, variant, operands, params_len).map(drop)
    }

    /// Records a kernel launch.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not compile on this device, the device is out of memory
    /// even after unused buffers were destroyed, the device was lost, or an input's contents were.
    /// If shaders are compiled with all checks, also if an index is outside its axis.
    pub fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<(), RuntimeError> {
        let recorded = self.record_dispatch(dispatch)?;
        self.finish_dispatch(recorded)
    }

    /// The first half of [`dispatch`](Self::dispatch): records a kernel launch. If it fails,
    /// nothing is recorded.
    ///
    /// # Errors
    ///
    /// As [`dispatch`](Self::dispatch).
    pub fn record_dispatch(&self, dispatch: &Dispatch<'_>) -> Result<Recorded, RuntimeError> {
        let Dispatch { key, kernel, inputs, outputs, params, groups, work, indexed_axes, .. } =
            *dispatch;
        let first_serial = self.gpu.serial();
        if groups == 0 {
            return Ok(Recorded { first_serial, overdue: None, reports: false });
        }
        self.gpu.check()?;
        // An output may be an operand that is overwritten.
        let Dispatch { also_read, also_written, .. } = *dispatch;
        let written = if also_written.is_empty() { outputs } else { also_written };
        for operand in inputs.iter().chain(also_read).chain(written) {
            operand.check(&self.gpu)?;
        }
        for operand in inputs.iter().chain(outputs) {
            self.check_binding(operand.bytes())?;
        }
        self.work_dispatched.fetch_add(work, Ordering::Relaxed);
        let state = self.state.lock();
        let (mut state, plan) = match state.plans.get(&key).cloned() {
            Some(plan) => (state, plan),
            None => {
                drop(state);
                let count = (inputs.len(), outputs.len() + usize::from(indexed_axes.is_some()));
                let plan = self.compiler.compile(&self.gpu, kernel(), count, params.len())?;
                let mut state = self.state.lock();
                state.plans.insert(key, plan.clone());
                (state, plan)
            }
        };
        if indexed_axes.is_some() && !state.reports.has_buffer() {
            let size = Reports::BUFFER_SIZE;
            let buffer;
            (state, buffer) = self.create_buffer(state, size, size)?;
            state.reports.set_buffer(buffer);
        }
        let mut state = self.place(state, outputs, inputs)?;
        let operands = LaunchOperands {
            inputs,
            outputs,
            also_read,
            written,
            separate: dispatch.separate,
            report: None,
            params,
            groups,
            work,
            max_binding: self.max_binding,
        };
        if inputs.iter().any(|input| is_in_buffer_of(input, outputs)) {
            state = self.dispatch_with_copies(state, &plan, operands, indexed_axes)?;
        } else {
            self.record(&mut state, &plan, operands, indexed_axes)?;
        }
        events::forget_operands();
        let overdue = state.recorder.overdue();
        Ok(Recorded { first_serial, overdue, reports: indexed_axes.is_some() })
    }

    /// The second half of [`dispatch`](Self::dispatch): checks the results, and waits until more
    /// commands may be recorded.
    ///
    /// # Errors
    ///
    /// As [`dispatch`](Self::dispatch). The launch was recorded; its results may be lost.
    pub fn finish_dispatch(&self, recorded: Recorded) -> Result<(), RuntimeError> {
        let Recorded { first_serial, overdue, reports } = recorded;
        // A submission that made room for this launch, that has a part of it, or that computes an
        // operand may have failed since.
        self.gpu.check_results(first_serial..=self.gpu.serial())?;
        self.wait_for_room(overdue)?;
        if reports && self.compiler.checked && CAN_BLOCK {
            return self.wait_for_recorded();
        }
        Ok(())
    }

    /// Returns an error if the contents of memory are lost, or depend on an index outside its axis.
    pub(crate) fn check_contents(&self, memory: &Allocation) -> Result<(), RuntimeError> {
        memory.check(&self.gpu)
    }

    /// Lets a later op return an error of work that has no caller.
    pub fn report_later(&self, error: RuntimeError) {
        match error {
            // The op that lost them has reported why, or sync does.
            RuntimeError::LostResults { .. } | RuntimeError::IndexOutOfRange { .. } => {}
            error => self.gpu.report_later(error),
        }
    }

    /// Marks memory as lost: it was written by commands that failed.
    pub fn lose(&self, memory: &Allocation) {
        memory.set_written(gpu::LOST);
    }

    /// Waits until more commands may be recorded, if too many submissions are `overdue`.
    fn wait_for_room(&self, overdue: Option<Arc<Progress>>) -> Result<(), RuntimeError> {
        let Some(progress) = overdue else { return Ok(()) };
        match progress.wait_for_room(&self.gpu)? {
            // Often, it has finished meanwhile.
            Some(submission) if CAN_BLOCK && self.gpu.has_in_flight(MAX_IN_FLIGHT) => {
                let _waiting = Waiting::begin(Wait::Room);
                self.gpu.wait(Some(submission))
            }
            _ => Ok(()),
        }
    }

    /// Records a launch of which all operands are placed.
    fn record(
        &self,
        state: &mut State,
        plan: &Plan,
        operands: LaunchOperands<'_>,
        indexed_axes: Option<&[IndexedAxis]>,
    ) -> Result<(), RuntimeError> {
        let slot = indexed_axes.map(|axes| self.slot(state, axes)).transpose()?;
        let operands = LaunchOperands { report: slot.as_ref(), ..operands };
        state.recorder.dispatch(&self.gpu, plan, &operands)
    }

    /// Returns a slot for the reports of a launch that is recorded at once. Copies the slots before it first, if they
    /// are due.
    fn slot(&self, state: &mut State, axes: &[IndexedAxis]) -> Result<Slot, RuntimeError> {
        if !CAN_BLOCK && let Some(buffer) = state.reports.forget_lost(self.gpu.failures()) {
            state.recorder.copy_encoder(&self.gpu).clear_buffer(&buffer.raw, 0, None);
        }
        if state.reports.is_due() {
            let copied = self.copy_reports(state);
            // If their launches have kept the slots, and there are others, the next launch tries it again.
            if state.reports.is_full() || !state.reports.is_due() {
                copied?;
            }
        }
        if let Some(slot) = state.reports.slot(axes) {
            return Ok(slot);
        }
        // The copy failed: the next launch tries it again.
        self.gpu.check()?;
        Err(RuntimeError::LostResults { device: self.name() })
    }

    /// Records a launch of which an input is in the buffer of an output: within one launch, wgpu
    /// allows a buffer to be read or to be written. Such inputs are copied first.
    #[cold]
    fn dispatch_with_copies<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        plan: &Plan,
        operands: LaunchOperands<'_>,
        indexed_axes: Option<&[IndexedAxis]>,
    ) -> Result<MutexGuard<'a, State>, RuntimeError> {
        let LaunchOperands { inputs, outputs, .. } = operands;
        let mut copies = Vec::with_capacity(inputs.len());
        for &input in inputs {
            copies.push(match is_in_buffer_of(input, outputs) {
                false => None,
                true => {
                    let copy = Allocation::new(input.bytes(), &self.returns);
                    state = self.place(state, &[&copy], outputs)?;
                    state.recorder.copy(&self.gpu, input, &copy);
                    Some(copy)
                }
            });
        }
        let inputs: Vec<&Allocation> = inputs
            .iter()
            .zip(&copies)
            .map(|(&input, copy)| copy.as_ref().unwrap_or(input))
            .collect();
        let operands = LaunchOperands { inputs: &inputs, ..operands };
        self.record(&mut state, plan, operands, indexed_axes)?;
        Ok(state)
    }

    /// Places those of the outputs that are not placed yet, such that they share no buffer with the
    /// inputs and with each other. Launches place their outputs by themselves: this is for launches
    /// that pass the [`Location`] of memory to the kernel.
    ///
    /// # Errors
    ///
    /// Returns an error if the device is out of memory.
    pub fn place_outputs(
        &self,
        outputs: &[&Allocation],
        inputs: &[&Allocation],
    ) -> Result<(), RuntimeError> {
        self.place(self.state.lock(), outputs, inputs).map(drop)
    }

    /// Places those of the outputs and inputs that are not placed yet. Outputs share no buffer with
    /// other operands.
    fn place<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        outputs: &[&Allocation],
        inputs: &[&Allocation],
    ) -> Result<MutexGuard<'a, State>, RuntimeError> {
        let operands = || inputs.iter().chain(outputs);
        if operands().all(|operand| operand.placement().is_some()) {
            return Ok(state);
        }
        self.take_back(&mut state);
        let mut avoid: SmallVec<[u64; 8]> =
            operands().filter_map(|operand| Some(operand.placement()?.buffer.id)).collect();
        for operand in operands() {
            if operand.placement().is_some() {
                continue;
            }
            let placement = match state.allocator.place(operand.bytes(), &avoid) {
                Placed::At(placement) => placement,
                Placed::NeedsBuffer(size) => {
                    let buffer;
                    (state, buffer) = self.create_buffer(state, size, operand.bytes())?;
                    state.allocator.add(buffer, operand.bytes())
                }
            };
            avoid.push(placement.buffer.id);
            let Placement { offset, size, requested, .. } = placement;
            let location = Location { buffer: placement.buffer.id, offset };
            self.gpu.observers.notify_of(
                || operand.origin(),
                || Event::Allocate { location, bytes: size, requested },
            );
            operand.set_placement(placement);
        }
        Ok(state)
    }

    /// Creates a buffer for tensors. If the device is out of memory, destroys unused buffers.
    fn create_buffer<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        size: u64,
        requested: u64,
    ) -> Result<(MutexGuard<'a, State>, Arc<Buffer>), RuntimeError> {
        if state.allocator.has_excess_retired() {
            // The driver frees destroyed buffers when the commands that use them have finished.
            state = self.submit_and_wait(state)?;
        }
        let out = self.gpu.faults.strikes(Fault::OutOfMemory);
        let short = out
            || self.gpu.faults.strikes(Fault::ShortOfMemory)
            || state.allocator.exceeds_cap(size);
        if !short && let Some(buffer) = self.gpu.create_tensor_buffer(size) {
            return Ok((state, buffer));
        }
        self.take_back(&mut state);
        state.allocator.trim(0);
        state = self.submit_and_wait(state)?;
        self.readback_buffers.trim();
        let out = out || state.allocator.exceeds_cap(size);
        match (!out).then(|| self.gpu.create_tensor_buffer(size)).flatten() {
            Some(buffer) => Ok((state, buffer)),
            None => {
                drop(state);
                Err(self.out_of_memory(requested))
            }
        }
    }

    /// Submits the recorded commands and waits for all submissions, without the lock. In a browser,
    /// which cannot block, only submits.
    fn submit_and_wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, RuntimeError> {
        self.submit(&mut state)?;
        if !CAN_BLOCK {
            return Ok(state);
        }
        state.recorder.forget_in_flight();
        drop(state);
        if self.gpu.is_idle() {
            self.gpu.check()?;
        } else {
            // Its message must not be written under the lock.
            let _waiting = Waiting::begin(Wait::Sync);
            self.gpu.wait_until(None, |status| status.is_queue_empty())?;
        }
        Ok(self.state.lock())
    }

    /// Takes back the memory of dropped allocations.
    fn take_back(&self, state: &mut State) {
        drop(self.returns.give_back(&mut state.allocator));
        let foreign = self.returns.take_foreign();
        if !foreign.is_empty() {
            // Cached bind groups would keep the buffers alive.
            state.recorder.forget(&foreign);
        }
    }

    /// Submits the recorded commands, and destroys the retired buffers, which only they still use.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver does not return from a submission.
    fn submit(&self, state: &mut State) -> Result<Submitted, RuntimeError> {
        let State { allocator, recorder, .. } = state;
        let submitted = recorder.submit(&self.gpu)?;
        recorder.destroy(&allocator.take_retired());
        Ok(submitted)
    }

    fn out_of_memory(&self, requested: u64) -> RuntimeError {
        let (usage, limit) = self.with_allocator(|allocator| (allocator.usage(), allocator.cap()));
        let MemoryUsage { in_use, reserved, .. } = usage;
        let holders = self.gpu.observers.holders();
        RuntimeError::OutOfMemory {
            device: self.name(),
            requested,
            in_use,
            reserved,
            limit,
            holders,
        }
    }

    /// Compiles a kernel, unless it was compiled before, so that its launches need not.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not compile on this device.
    pub(crate) fn prepare(&self, compilation: Compilation<'_>) -> Result<(), RuntimeError> {
        let Compilation { key, kernel, operands, params_len } = compilation;
        if !self.is_prepared(&key) {
            let plan = self.compiler.compile(&self.gpu, kernel(), operands, params_len)?;
            self.state.lock().plans.insert(key, plan);
        }
        Ok(())
    }

    /// Returns whether a kernel was compiled.
    pub fn is_prepared(&self, key: &KernelKey) -> bool {
        self.state.lock().plans.contains_key(key)
    }

    /// Returns whether more kernels should be generated for programs. Otherwise a launch should use a
    /// kernel that [is prepared](Self::is_prepared), or one that is not generated.
    pub fn may_generate(&self) -> bool {
        self.compiler.may_generate()
    }

    /// Returns the number of kernels that were generated for programs of several ops.
    pub fn generated_kernels(&self) -> usize {
        self.compiler.generated()
    }

    /// Sets the maximum number of kernels that are generated for programs.
    pub fn set_max_generated_kernels(&self, count: usize) {
        self.compiler.set_max_generated(count);
    }

    /// Returns whether `len` bytes of parameters are not too many for a kernel of `operands`
    /// operands.
    pub fn fits_params(&self, len: usize, operands: usize) -> bool {
        compiler::padded_params_len(len, operands) <= params::PARAMS_SIZE
    }

    /// Adds work that is recorded when its result is needed, at the latest by
    /// [`flush`](Self::flush) and [`sync`](Self::sync). Work that is dropped before is forgotten.
    /// Work with the same signature is likely to differ only in its operands.
    pub fn defer(&self, signature: u64, work: Weak<dyn Deferred>) {
        self.deferred.push(signature, work);
    }

    /// Returns whether the kernels of this crate can reach all memory in the buffers of their
    /// operands.
    pub fn binds_whole_buffers(&self) -> bool {
        !self.compiler.checked
    }

    /// Returns the pending work with a signature. The lock of
    /// [`lock_deferred`](Self::lock_deferred) must be held.
    pub fn deferred_like(&self, signature: u64) -> Vec<Arc<dyn Deferred>> {
        self.deferred.like(signature)
    }

    /// Returns a lock under which the state of deferred work changes. It must not be held while a
    /// kernel is compiled.
    pub fn lock_deferred(&self) -> MutexGuard<'_, ()> {
        self.deferred.lock()
    }

    /// Returns whether no thread holds the lock of [`lock_deferred`](Self::lock_deferred).
    pub fn can_lock_deferred(&self) -> bool {
        self.deferred.try_lock().is_some()
    }

    /// Records the deferred work, the newest first: it may include older work that it needs.
    ///
    /// # Errors
    ///
    /// Returns the first error. The other work is recorded all the same.
    pub fn record_deferred(&self) -> Result<(), RuntimeError> {
        let mut result = Ok(());
        for work in self.deferred.all().iter().rev().filter_map(Weak::upgrade) {
            let recorded = match work.record() {
                // It stays pending, and is an error where it is used.
                Err(RuntimeError::IndexOutOfRange { .. }) => Ok(()),
                recorded => recorded,
            };
            result = result.and(recorded);
        }
        result
    }

    /// Records the deferred work, and submits all that is recorded without waiting for it to
    /// finish.
    ///
    /// # Errors
    ///
    /// Returns an error if deferred work cannot be recorded.
    pub fn flush(&self) -> Result<(), RuntimeError> {
        let recorded = self.record_deferred();
        self.submit(&mut self.state.lock())?;
        self.gpu.reclaim();
        recorded
    }

    /// Records the deferred work, and waits until the GPU has finished everything recorded and
    /// uploaded so far.
    ///
    /// # Errors
    ///
    /// Returns an error if deferred work cannot be recorded, the device was lost or reported an
    /// error, or an index was outside its axis. In a browser, which cannot block, always returns an
    /// error; the recorded commands are still submitted.
    pub fn sync(&self) -> Result<(), RuntimeError> {
        if !CAN_BLOCK {
            self.flush()?;
            return self.gpu.check_can_block();
        }
        let recorded = self.record_deferred();
        self.wait_for_recorded().and(recorded)
    }

    /// Waits until the GPU has finished everything recorded and uploaded so far. Returns the first error that the
    /// program was not given.
    fn wait_for_recorded(&self) -> Result<(), RuntimeError> {
        let mut state = self.state.lock();
        self.copy_reports(&mut state)?;
        let end = self.gpu.serial();
        drop(self.submit_and_wait(state)?);
        pollster::block_on(self.finish_reports(end));
        self.compiler.save();
        self.outcomes.take_error()
    }
}

/// Returns whether an input is in the same buffer as an output.
fn is_in_buffer_of(input: &Allocation, outputs: &[&Allocation]) -> bool {
    outputs.iter().any(|output| output.shares_buffer(input))
}

/// Waits for a future. In a browser, which cannot block, it must be ready.
///
/// # Panics
///
/// Panics in a browser if the future is not ready.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    if CAN_BLOCK {
        return pollster::block_on(future);
    }
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a browser cannot block"),
    }
}
