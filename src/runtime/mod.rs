//! An opened device: command stream, memory pool, pipelines, uploads and readback.
//!
//! This module handles buffers and shaders; shapes are handled by the layers above.
//! [`Runtime::dispatch`] records a kernel launch. The host waits for the GPU in [`Runtime::read`],
//! in [`Runtime::sync`], and when too many submissions are in flight.

mod cache;
mod error;
mod kernel;
mod memory;
mod params;
mod profile;
mod readback;
mod shader;
mod stream;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::device::{self, AdapterInfo, AdapterKind, CAN_BLOCK, DeviceError, IMMEDIATE_BYTES};
use cache::PipelineCache;
use memory::{Buffer, Pool, PoolResponse};
use stream::{RecordedDispatch, Stream};

pub use cache::{CACHE_VARIABLE, TuningCache, cache_folder};
pub use error::RuntimeError;
pub use kernel::{Expr, Kernel, KernelKey};
pub use memory::{Allocation, MemoryUsage};
pub use params::{ParamField, Params};
pub use profile::{KernelTime, Profile, ProfileError};
pub use shader::{Compiler, Def, ParamsBinding, Source, Target, Variant, expand};

/// Maximum number of workgroups in one dimension of a grid: the default limit of WebGPU.
const MAX_GROUPS: u32 = 65_535;

/// Operations after which a software adapter counts as warmed up: about a second of work.
/// The software adapters of browsers are slower.
const WARM_UP_WORK: u64 = if CAN_BLOCK { 1 << 33 } else { 1 << 30 };

/// One kernel launch.
#[derive(Debug)]
pub struct Dispatch<'a> {
    /// The kernel to launch.
    pub variant: &'a Variant,
    /// Read-only buffers, in binding order.
    pub inputs: &'a [&'a Allocation],
    /// Buffers that are written, or read and written. Their bindings follow those of the inputs.
    pub outputs: &'a [&'a Allocation],
    /// The kernel's `Params` struct as bytes, at most 512.
    pub params: &'a [u8],
    /// Number of workgroups. They are folded into a 3D grid. In the shader, `group_index` computes
    /// the linear index.
    pub groups: u64,
    /// Approximate number of operations, used to bound how long a submission runs.
    pub work: u64,
}

/// The bindings of a kernel. Kernels with equal interfaces share layouts and bind groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Interface {
    /// Number of input buffers.
    inputs: u8,
    /// Number of output buffers.
    outputs: u8,
    params: ParamsBinding,
}

/// An opened device.
pub struct Runtime {
    info: AdapterInfo,
    device: wgpu::Device,
    queue: wgpu::Queue,
    stream: Mutex<Stream>,
    pool: Arc<Pool>,
    pipelines: Mutex<FxHashMap<Variant, wgpu::ComputePipeline>>,
    pipeline_cache: Option<PipelineCache>,
    tuning_cache: TuningCache,
    layouts: Mutex<FxHashMap<Interface, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>>,
    next_buffer_id: AtomicU64,
    /// Why the device was lost. Set once it is lost.
    lost: Arc<OnceLock<String>>,
    /// The first error that no error scope caught. Data on the device may be wrong after it.
    uncaptured_error: Arc<OnceLock<wgpu::Error>>,
    /// Approximate number of operations dispatched so far.
    work_dispatched: AtomicU64,
    /// Whether shaders are compiled with all runtime checks.
    checked: bool,
    /// Whether kernels for software adapters are used.
    software: bool,
    /// Whether the device counts as warmed up from the start.
    skip_warm_up: bool,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("adapter", &self.info.name).finish_non_exhaustive()
    }
}

/// The opened devices, by their index in `device::adapters()`.
static OPENED: LazyLock<Mutex<HashMap<usize, Arc<Runtime>>>> = LazyLock::new(Default::default);

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

impl Runtime {
    /// Returns the runtime of an adapter.
    ///
    /// Opens the adapter's device at first use, and again after the device was lost. In a browser
    /// only [`open`](Self::open) can open a device.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver refuses to open the adapter or the adapter lacks a required
    /// limit. In a browser, returns an error if the device is not open.
    ///
    /// # Panics
    ///
    /// Panics if `adapter` is out of range for `device::adapters()`. The index in a
    /// `device::ResolvedDevice` is always in range.
    pub fn of(adapter: usize) -> Result<Arc<Self>, DeviceError> {
        let mut opened = OPENED.lock();
        let mut reason = None;
        if let Some(runtime) = opened.get(&adapter) {
            match runtime.check_usable() {
                Ok(()) => return Ok(runtime.clone()),
                Err(error) => reason = Some(error.to_string()),
            }
        }
        let found = &device::adapters()[adapter];
        if !CAN_BLOCK {
            return Err(DeviceError::NotOpen { adapter: found.info.name.clone(), reason });
        }
        let runtime = Arc::new(Self::new(pollster::block_on(device::open(found))?));
        opened.insert(adapter, runtime.clone());
        Ok(runtime)
    }

    /// Returns the runtime of an adapter like [`of`](Self::of).
    ///
    /// In a browser this also opens the device if it is not open.
    ///
    /// # Errors
    ///
    /// Returns an error if the adapter is gone, the driver refuses to open it, or it lacks a
    /// required limit.
    ///
    /// # Panics
    ///
    /// Panics if `adapter` is out of range for `device::adapters()`.
    pub async fn open(adapter: usize) -> Result<Arc<Self>, DeviceError> {
        let opened = Self::of(adapter);
        if CAN_BLOCK || opened.is_ok() {
            return opened;
        }
        // A `GPUAdapter` in a browser can open only one device, so a new adapter is requested.
        let known = &device::adapters()[adapter];
        let fresh = device::enumerate().await;
        let runtime = Arc::new(Self::new(device::open(fresh.get(adapter).unwrap_or(known)).await?));
        // Another task may have opened the adapter during the `await`. All tensors of an adapter
        // must be on the same device, so the first device is kept.
        if let Ok(first) = Self::of(adapter) {
            runtime.destroy();
            return Ok(first);
        }
        OPENED.lock().insert(adapter, runtime.clone());
        Ok(runtime)
    }

    /// Returns the runtime of an adapter if its device is open.
    pub fn opened(adapter: usize) -> Option<Arc<Self>> {
        OPENED.lock().get(&adapter).cloned()
    }

    /// Destroys an adapter's device if it is open.
    ///
    /// Tensors on the device are lost. The next use of the adapter opens a new device; in a browser
    /// the next [`open`](Self::open) does.
    pub fn close(adapter: usize) {
        let runtime = OPENED.lock().remove(&adapter);
        if let Some(runtime) = runtime {
            runtime.destroy();
        }
    }

    fn new(opened: device::OpenDevice) -> Self {
        let device::OpenDevice { device, queue, mut info } = opened;
        // For tests: simulates a browser without subgroups.
        info.features.subgroups &= !is_set("BURN_WGSL_NO_SUBGROUPS");
        let lost: Arc<OnceLock<String>> = Arc::default();
        device.set_device_lost_callback({
            let (lost, name) = (lost.clone(), info.name.clone());
            move |reason, message| {
                // `Destroyed` is also reported when the process exits normally.
                if reason != wgpu::DeviceLostReason::Destroyed {
                    log::error!("the device {name} was lost: {message}");
                }
                let _ = lost.set(if message.is_empty() { format!("{reason:?}") } else { message });
            }
        });
        let uncaptured_error: Arc<OnceLock<wgpu::Error>> = Arc::default();
        device.on_uncaptured_error(Arc::new({
            let (uncaptured_error, name) = (uncaptured_error.clone(), info.name.clone());
            move |error: wgpu::Error| {
                log::error!("{name}: {error}");
                let _ = uncaptured_error.set(error);
            }
        }));
        let pool = Arc::new(Pool::new(
            info.limits.max_storage_binding_size.min(info.limits.max_buffer_size),
        ));
        Self {
            stream: Mutex::new(Stream::new(&device, pool.clone())),
            pool,
            pipelines: Mutex::default(),
            pipeline_cache: PipelineCache::open(&device, &info),
            tuning_cache: TuningCache::open(&info),
            layouts: Mutex::default(),
            next_buffer_id: AtomicU64::new(1),
            work_dispatched: AtomicU64::new(0),
            checked: is_set("BURN_WGSL_CHECKED") || CHECKED.load(Ordering::Relaxed),
            // For tests: `BURN_WGSL_AS_GPU=1` runs GPU kernels on a software adapter, slowly.
            software: info.kind == AdapterKind::Software && !is_set("BURN_WGSL_AS_GPU"),
            skip_warm_up: is_set("BURN_WGSL_WARM"),
            info,
            device,
            queue,
            lost,
            uncaptured_error,
        }
    }

    /// Returns the adapter info.
    pub fn info(&self) -> &AdapterInfo {
        &self.info
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
    /// second. With `BURN_WGSL_WARM=1` every device is warmed up from the start.
    pub fn is_warmed_up(&self) -> bool {
        self.skip_warm_up || self.work_dispatched() > WARM_UP_WORK
    }

    /// Returns the tuning results for this adapter.
    pub fn tuning_cache(&self) -> &TuningCache {
        &self.tuning_cache
    }

    /// Returns how much memory is in use and reserved, and the peak.
    pub fn memory(&self) -> MemoryUsage {
        self.pool.usage()
    }

    /// Destroys unused buffers, which returns their memory to the driver.
    pub fn trim(&self) {
        let mut stream = self.stream.lock();
        // Recorded commands may still use the buffers.
        stream.submit(&self.device, &self.queue);
        stream.clear_bind_groups();
        self.pool.trim();
        self.pool.destroy_retired();
    }

    /// Destroys the device and marks it as lost.
    fn destroy(&self) {
        self.device.destroy();
        let _ = self.device.poll(wgpu::PollType::Poll);
        let _ = self.lost.set("it was closed".to_owned());
    }

    /// Returns an error if the device was lost or raised an uncaptured error.
    pub(crate) fn check_usable(&self) -> Result<(), RuntimeError> {
        let device = || self.info.name.clone();
        if let Some(reason) = self.lost.get() {
            return Err(RuntimeError::DeviceLost { device: device(), reason: reason.clone() });
        }
        match self.uncaptured_error.get() {
            Some(wgpu::Error::OutOfMemory { .. }) => {
                Err(RuntimeError::Exhausted { device: device(), in_use: self.memory().in_use })
            }
            Some(error) => {
                Err(RuntimeError::Failed { device: device(), message: error.to_string() })
            }
            None => Ok(()),
        }
    }

    /// Allocates `bytes` bytes with undefined contents.
    ///
    /// The allocation shares no buffer with the allocations in `avoid`.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` exceeds the largest binding, or if the device is out of memory
    /// even after unused buffers were destroyed.
    pub fn alloc(&self, bytes: u64, avoid: &[&Allocation]) -> Result<Allocation, RuntimeError> {
        self.check_usable()?;
        let limit = self.pool.limit();
        if bytes > limit {
            let device = self.info.name.clone();
            return Err(RuntimeError::TooLarge { device, requested: bytes, limit });
        }
        let avoid: SmallVec<[u64; 8]> = avoid.iter().map(|a| a.buffer.id).collect();
        match self.pool.try_alloc(bytes, &avoid) {
            PoolResponse::Allocated(allocation) => Ok(allocation),
            PoolResponse::NeedsBuffer(size) => {
                if self.pool.has_excess_retired() {
                    // Waits until the commands that use the retired buffers have finished. In a
                    // browser, which cannot block, the commands are only submitted.
                    let _ = self.sync();
                }
                let raw = match self.create_buffer(size) {
                    Some(raw) => raw,
                    None => {
                        self.sync()?;
                        self.trim();
                        self.create_buffer(size).ok_or_else(|| self.out_of_memory(size))?
                    }
                };
                let id = self.next_buffer_id.fetch_add(1, Ordering::Relaxed);
                Ok(self.pool.add_buffer(Buffer { id, raw }, bytes))
            }
        }
    }

    fn out_of_memory(&self, requested: u64) -> RuntimeError {
        let MemoryUsage { in_use, reserved, .. } = self.memory();
        RuntimeError::OutOfMemory { device: self.info.name.clone(), requested, in_use, reserved }
    }

    /// Creates a buffer for tensors. Returns `None` if the device is out of memory.
    fn create_buffer(&self, size: u64) -> Option<wgpu::Buffer> {
        let create = || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        };
        self.with_error_scopes(&[wgpu::ErrorFilter::OutOfMemory], create).ok()
    }

    /// Runs `create` and returns its result, or an error of the kinds in `filters` that it caused.
    ///
    /// A browser reports errors later, to the uncaptured-error handler. There the returned object
    /// may be invalid, and the next readback returns the error.
    fn with_error_scopes<T>(
        &self,
        filters: &[wgpu::ErrorFilter],
        create: impl FnOnce() -> T,
    ) -> Result<T, wgpu::Error> {
        if !CAN_BLOCK {
            return Ok(create());
        }
        let scopes: SmallVec<[_; 2]> =
            filters.iter().map(|&filter| self.device.push_error_scope(filter)).collect();
        let created = create();
        // Scopes must be popped innermost first.
        let errors = scopes.into_iter().rev().filter_map(|scope| pollster::block_on(scope.pop()));
        errors.last().map_or(Ok(created), Err)
    }

    /// Uploads `data` to a new allocation.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`Runtime::alloc`], or if there is no memory for the
    /// staging buffer.
    pub fn upload(&self, data: &[u8]) -> Result<Allocation, RuntimeError> {
        let allocation = self.alloc(data.len() as u64, &[])?;
        if !data.is_empty() {
            let written = self.stream.lock().upload(&self.device, &self.queue, &allocation, data);
            if !written {
                return Err(self.out_of_memory(data.len() as u64));
            }
        }
        Ok(allocation)
    }

    /// Records a kernel launch.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not compile on this device, or the device was lost.
    pub fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<(), RuntimeError> {
        if dispatch.groups == 0 {
            return Ok(());
        }
        self.check_usable()?;
        debug_assert!(dispatch.params.len() <= stream::PARAMS_SIZE);
        let interface = Interface {
            inputs: dispatch.inputs.len() as u8,
            outputs: dispatch.outputs.len() as u8,
            params: self.params_binding(dispatch.params.len()),
        };
        let (bind_group_layout, pipeline_layout) = self.layouts(interface);
        let pipeline = self.pipeline(dispatch.variant, interface.params, &pipeline_layout)?;
        self.work_dispatched.fetch_add(dispatch.work, Ordering::Relaxed);
        self.stream.lock().dispatch(
            &self.device,
            &self.queue,
            RecordedDispatch {
                variant: dispatch.variant,
                pipeline: &pipeline,
                layout: &bind_group_layout,
                interface,
                inputs: dispatch.inputs,
                outputs: dispatch.outputs,
                params: dispatch.params,
                grid: fold_grid(dispatch.groups),
                work: dispatch.work,
            },
        );
        Ok(())
    }

    /// Returns how a kernel receives `bytes` bytes of parameters.
    ///
    /// Immediates are used where they fit, because a dynamic uniform offset costs the driver more.
    fn params_binding(&self, bytes: usize) -> ParamsBinding {
        let fit = self.info.features.immediates && bytes <= IMMEDIATE_BYTES as usize;
        if fit { ParamsBinding::Immediates } else { ParamsBinding::Uniform }
    }

    /// Returns the pipeline of a variant, compiled at first use.
    fn pipeline(
        &self,
        variant: &Variant,
        params: ParamsBinding,
        layout: &wgpu::PipelineLayout,
    ) -> Result<wgpu::ComputePipeline, RuntimeError> {
        let mut pipelines = self.pipelines.lock();
        if let Some(pipeline) = pipelines.get(variant) {
            return Ok(pipeline.clone());
        }
        let shader_error = |message| RuntimeError::Shader { kernel: variant.to_string(), message };
        let loads_u64 = self.software && self.info.features.int64;
        let target = Target { compiler: Compiler::CURRENT, params, loads_u64 };
        let text = expand(variant, target).map_err(shader_error)?;
        let compile = || {
            let module = self.create_shader_module(variant.source.name, &text);
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(variant.source.name),
                layout: Some(layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &[],
                    zero_initialize_workgroup_memory: self.checked,
                },
                cache: self.pipeline_cache.as_ref().map(PipelineCache::raw),
            })
        };
        // `Validation` covers errors of the shader compiler, `Internal` those of the driver.
        let filters = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::Internal];
        let pipeline = self
            .with_error_scopes(&filters, compile)
            .map_err(|error| shader_error(error.to_string()))?;
        log::debug!("compiled {variant}");
        if let Some(cache) = &self.pipeline_cache {
            cache.mark_dirty();
        }
        pipelines.insert(variant.clone(), pipeline.clone());
        Ok(pipeline)
    }

    /// Creates a shader module. All modules are created here, so that `checked` applies to each.
    fn create_shader_module(&self, name: &str, text: &str) -> wgpu::ShaderModule {
        let checks = if self.checked {
            wgpu::ShaderRuntimeChecks::checked()
        } else {
            wgpu::ShaderRuntimeChecks::unchecked()
        };
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let descriptor = wgpu::ShaderModuleDescriptor { label: Some(name), source };
        // SAFETY: the text comes from the kernels of this crate. They keep every index within their
        // bound buffers, and all their loops terminate. With `checked`, wgpu enforces both.
        unsafe { self.device.create_shader_module_trusted(descriptor, checks) }
    }

    /// Returns the layouts for an interface, created at first use.
    fn layouts(&self, interface: Interface) -> (wgpu::BindGroupLayout, wgpu::PipelineLayout) {
        let Interface { inputs, outputs, params } = interface;
        let mut layouts = self.layouts.lock();
        let create = || {
            let mut types = Vec::new();
            if params == ParamsBinding::Uniform {
                types.push(wgpu::BufferBindingType::Uniform);
            }
            types.extend(
                (0..inputs + outputs)
                    .map(|i| wgpu::BufferBindingType::Storage { read_only: i < inputs }),
            );
            let entries: Vec<_> =
                (0..).zip(types).map(|(binding, ty)| layout_entry(binding, ty)).collect();
            let bind_group =
                self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                    label: None,
                    entries: &entries,
                });
            let pipeline = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&bind_group)],
                immediate_size: if params == ParamsBinding::Immediates {
                    IMMEDIATE_BYTES
                } else {
                    0
                },
            });
            (bind_group, pipeline)
        };
        layouts.entry(interface).or_insert_with(create).clone()
    }

    /// Submits the recorded commands without waiting for them to finish.
    pub fn flush(&self) {
        self.stream.lock().submit(&self.device, &self.queue);
    }

    /// Waits until the GPU has finished everything recorded so far.
    ///
    /// # Errors
    ///
    /// Returns an error if the device was lost. In a browser, which cannot block, always returns an
    /// error; the recorded commands are still submitted.
    pub fn sync(&self) -> Result<(), RuntimeError> {
        let mut stream = self.stream.lock();
        stream.submit(&self.device, &self.queue);
        self.check_can_block()?;
        let waited = self.device.poll(wgpu::PollType::wait_indefinitely());
        stream.clear_in_flight();
        drop(stream);
        self.save_pipeline_cache();
        self.check_usable()?;
        waited.map(|_| ()).map_err(|error| self.readback_error(&error))
    }

    /// Returns an error where the host cannot block, which is in a browser.
    pub(crate) fn check_can_block(&self) -> Result<(), RuntimeError> {
        if !CAN_BLOCK {
            return Err(RuntimeError::CannotBlock { device: self.info.name.clone() });
        }
        Ok(())
    }

    /// Writes newly compiled pipelines to the pipeline cache file.
    fn save_pipeline_cache(&self) {
        if let Some(cache) = &self.pipeline_cache {
            cache.save();
        }
    }

    fn readback_error(&self, error: &dyn std::fmt::Display) -> RuntimeError {
        RuntimeError::Readback { device: self.info.name.clone(), message: error.to_string() }
    }
}

/// Returns whether an environment variable is set to a value other than `0` or the empty string.
fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value != "0" && !value.is_empty())
}

fn layout_entry(binding: u32, ty: wgpu::BufferBindingType) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: ty == wgpu::BufferBindingType::Uniform,
            min_binding_size: None,
        },
        count: None,
    }
}

/// Folds a number of workgroups into a 3D grid with at least that many workgroups.
fn fold_grid(groups: u64) -> (u32, u32, u32) {
    let max = u64::from(MAX_GROUPS);
    if groups <= max {
        return (groups as u32, 1, 1);
    }
    let rows = groups.div_ceil(max);
    if rows <= max {
        // Rows of equal length leave few surplus workgroups.
        return (groups.div_ceil(rows) as u32, rows as u32, 1);
    }
    (MAX_GROUPS, MAX_GROUPS, rows.div_ceil(max) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_grid_has_at_least_the_requested_workgroups() {
        for groups in [1, 65_535, 65_536, 1_000_003, u64::from(MAX_GROUPS) * 65_535 + 1] {
            let (x, y, z) = fold_grid(groups);
            let total = u64::from(x) * u64::from(y) * u64::from(z);
            assert!(total >= groups && x <= MAX_GROUPS && y <= MAX_GROUPS, "{groups}");
        }
        assert_eq!(fold_grid(65_536), (32_768, 2, 1));
    }
}
