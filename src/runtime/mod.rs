//! One object per opened device: command stream, memory pool, pipelines, uploads and readback.
//!
//! Knows buffers and shaders, not shapes. A kernel launch is [`Runtime::dispatch`]; nothing here waits
//! for the GPU unless data is asked for ([`Runtime::read`]) or [`Runtime::sync`] is called.

mod cache;
mod error;
mod memory;
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
use memory::{Buffer, Pool, Request};
use stream::{RecordedDispatch, Stream};

pub use cache::{CACHE_VARIABLE, TuningCache, cache_folder};
pub use error::RuntimeError;
pub use memory::{Allocation, MemoryUsage};
pub use profile::{KernelTime, Profile, ProfileError};
pub use shader::{Compiler, Def, ParamsIn, Source, Target, Variant, expand};

/// The most workgroups a grid may have in one dimension.
const MAX_GROUPS: u32 = 65_535;

/// So many operations take a software adapter about a second; those of browsers are slower.
const WARM: u64 = if CAN_BLOCK { 1 << 33 } else { 1 << 30 };

/// One kernel launch: the variant, what it reads and writes, its parameters and its size.
#[derive(Debug)]
pub struct Dispatch<'a> {
    /// The kernel.
    pub variant: &'a Variant,
    /// Buffers that are only read, in binding order.
    pub inputs: &'a [&'a Allocation],
    /// Buffers that are written (or read and written), after the inputs in binding order.
    pub outputs: &'a [&'a Allocation],
    /// The bytes of the kernel's `Params`, at most 512.
    pub params: &'a [u8],
    /// How many workgroups run; folded into three dimensions here, unfolded by `group_index`.
    pub groups: u64,
    /// A rough count of operations, to bound how long a submission runs.
    pub work: u64,
}

/// What a kernel is given: kernels that are given the same share their bind groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Interface {
    inputs: u8,
    outputs: u8,
    params: ParamsIn,
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
    next_buffer: AtomicU64,
    lost: Arc<OnceLock<String>>,
    /// The first error that nobody was there to catch: what the device holds is not to be trusted since.
    failed: Arc<OnceLock<wgpu::Error>>,
    /// The operations that the device has been given, roughly.
    work_done: AtomicU64,
    checked: bool,
    software: bool,
    warm: bool,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("adapter", &self.info.name).finish_non_exhaustive()
    }
}

/// The opened devices, by their place among `device::adapters()`.
static OPENED: LazyLock<Mutex<HashMap<usize, Arc<Runtime>>>> = LazyLock::new(Default::default);

/// Whether kernels opened from now on run with every shader check of the compiler.
static CHECKED: AtomicBool = AtomicBool::new(false);

/// Turns every shader check back on (bounds, loops, division, workgroup memory) for devices opened
/// from now on. The environment variable `BURN_WGSL_CHECKED=1` does the same. For debugging: it is slow.
pub fn check_shaders(on: bool) {
    CHECKED.store(on, Ordering::Relaxed);
}

impl Runtime {
    /// The runtime of an adapter, opened at first use and again after the device was lost. In a browser only [`open`](Self::open) can
    /// do that.
    ///
    /// # Errors
    ///
    /// When the adapter refuses to open or lacks what the kernels need; in a browser, when it is not open.
    ///
    /// # Panics
    ///
    /// When `adapter` is past the last of `device::adapters()`; a `device::ResolvedDevice` never is.
    pub fn of(adapter: usize) -> Result<Arc<Self>, DeviceError> {
        let mut opened = OPENED.lock();
        let mut reason = None;
        if let Some(runtime) = opened.get(&adapter) {
            match runtime.check_lost() {
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

    /// As [`of`](Self::of), for those who can await.
    ///
    /// # Errors
    ///
    /// When the adapter is gone, refuses to open or lacks what the kernels need.
    ///
    /// # Panics
    ///
    /// When `adapter` is past the last of `device::adapters()`.
    pub async fn open(adapter: usize) -> Result<Arc<Self>, DeviceError> {
        let open = Self::of(adapter);
        if CAN_BLOCK || open.is_ok() {
            return open;
        }
        // A browser's adapter opens one device and is used up by that: it is asked for anew.
        let known = &device::adapters()[adapter];
        let fresh = device::enumerate().await;
        let runtime = Arc::new(Self::new(device::open(fresh.get(adapter).unwrap_or(known)).await?));
        // Somebody else may have opened it meanwhile: all tensors must be on one device.
        if let Ok(first) = Self::of(adapter) {
            runtime.destroy();
            return Ok(first);
        }
        OPENED.lock().insert(adapter, runtime.clone());
        Ok(runtime)
    }

    /// The runtime of an adapter, if it is open.
    pub fn opened(adapter: usize) -> Option<Arc<Self>> {
        OPENED.lock().get(&adapter).cloned()
    }

    /// Gives an adapter's device back to the driver, if it is open, as if it were lost: tensors on it are gone. The next use of the
    /// adapter opens it anew, in a browser the next [`open`](Self::open).
    pub fn close(adapter: usize) {
        let runtime = OPENED.lock().remove(&adapter);
        if let Some(runtime) = runtime {
            runtime.destroy();
        }
    }

    fn new(opened: device::OpenDevice) -> Self {
        let device::OpenDevice { device, queue, mut info } = opened;
        // As in browsers: for tests.
        info.features.subgroups &= !is_set("BURN_WGSL_NO_SUBGROUPS");
        let lost: Arc<OnceLock<String>> = Arc::default();
        device.set_device_lost_callback({
            let (lost, name) = (lost.clone(), info.name.clone());
            move |reason, message| {
                // `Destroyed` is also what a normal end of the process looks like.
                if reason != wgpu::DeviceLostReason::Destroyed {
                    log::error!("the device {name} was lost: {message}");
                }
                let _ = lost.set(if message.is_empty() { format!("{reason:?}") } else { message });
            }
        });
        let failed: Arc<OnceLock<wgpu::Error>> = Arc::default();
        device.on_uncaptured_error(Arc::new({
            let (failed, name) = (failed.clone(), info.name.clone());
            move |error: wgpu::Error| {
                log::error!("{name}: {error}");
                let _ = failed.set(error);
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
            next_buffer: AtomicU64::new(1),
            work_done: AtomicU64::new(0),
            checked: is_set("BURN_WGSL_CHECKED") || CHECKED.load(Ordering::Relaxed),
            // `BURN_WGSL_AS_GPU=1` has a software adapter run what GPUs are given: slow, but a test of them.
            software: info.kind == AdapterKind::Software && !is_set("BURN_WGSL_AS_GPU"),
            warm: is_set("BURN_WGSL_WARM"),
            info,
            device,
            queue,
            lost,
            failed,
        }
    }

    /// What is known about the adapter.
    pub fn info(&self) -> &AdapterInfo {
        &self.info
    }

    /// Whether the adapter is a CPU in disguise, where barriers and workgroup memory are dear.
    pub fn is_software(&self) -> bool {
        self.software
    }

    /// Roughly how many operations the device has been given since it was opened.
    pub fn work_done(&self) -> u64 {
        self.work_done.load(Ordering::Relaxed)
    }

    /// Whether the device has been busy for long enough, on a software adapter about a second, that kernels which
    /// take long to compile, or serve fewer cases, are worth their while.
    /// `BURN_WGSL_WARM=1` has it so from the start.
    pub fn is_warmed_up(&self) -> bool {
        self.warm || self.work_done() > WARM
    }

    /// What was found to be the fastest on this adapter.
    pub fn tuning_cache(&self) -> &TuningCache {
        &self.tuning_cache
    }

    /// Memory in use, reserved and at its peak.
    pub fn memory(&self) -> MemoryUsage {
        self.pool.usage()
    }

    /// Returns unused memory to the driver.
    pub fn trim(&self) {
        let mut stream = self.stream.lock();
        // What was recorded may still name it.
        stream.submit(&self.device, &self.queue);
        stream.forget_bind_groups();
        self.pool.trim();
        self.pool.destroy_retired();
    }

    /// Gives the device back to the driver, as if it were lost.
    fn destroy(&self) {
        self.device.destroy();
        let _ = self.device.poll(wgpu::PollType::Poll);
        let _ = self.lost.set("it was given back".to_owned());
    }

    pub(crate) fn check_lost(&self) -> Result<(), RuntimeError> {
        let device = || self.info.name.clone();
        if let Some(reason) = self.lost.get() {
            return Err(RuntimeError::DeviceLost { device: device(), reason: reason.clone() });
        }
        match self.failed.get() {
            Some(wgpu::Error::OutOfMemory { .. }) => {
                Err(RuntimeError::Exhausted { device: device(), in_use: self.memory().in_use })
            }
            Some(error) => {
                Err(RuntimeError::Failed { device: device(), message: error.to_string() })
            }
            None => Ok(()),
        }
    }

    /// Memory for `bytes`, with undefined content, in none of the buffers of `avoid`.
    ///
    /// # Errors
    ///
    /// When the size exceeds a binding, or the memory is not there even after unused memory was
    /// returned.
    pub fn alloc(&self, bytes: u64, avoid: &[&Allocation]) -> Result<Allocation, RuntimeError> {
        self.check_lost()?;
        let limit = self.pool.limit();
        if bytes > limit {
            let device = self.info.name.clone();
            return Err(RuntimeError::TooLarge { device, asked: bytes, limit });
        }
        let ids: SmallVec<[u64; 8]> = avoid.iter().map(|s| s.buffer.id).collect();
        match self.pool.request(bytes, &ids) {
            Request::Served(slice) => Ok(slice),
            Request::Create(size) => {
                if self.pool.is_overdue() {
                    // It is free once the work that names it is done. A browser cannot wait: there it is handed over.
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
                let id = self.next_buffer.fetch_add(1, Ordering::Relaxed);
                Ok(self.pool.add(Buffer { id, raw }, bytes))
            }
        }
    }

    fn out_of_memory(&self, asked: u64) -> RuntimeError {
        let MemoryUsage { in_use, reserved, .. } = self.memory();
        RuntimeError::OutOfMemory { device: self.info.name.clone(), asked, in_use, reserved }
    }

    fn create_buffer(&self, size: u64) -> Option<wgpu::Buffer> {
        let buffer = || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        };
        self.with_error_scopes(&[wgpu::ErrorFilter::OutOfMemory], buffer).ok()
    }

    /// What `make` makes, or the error of these kinds which it led to. A browser tells errors only later, to the
    /// device's handler: there what is made may be of no use, and the next readback says why.
    fn with_error_scopes<T>(
        &self,
        kinds: &[wgpu::ErrorFilter],
        make: impl FnOnce() -> T,
    ) -> Result<T, wgpu::Error> {
        if !CAN_BLOCK {
            return Ok(make());
        }
        let scopes: SmallVec<[_; 2]> =
            kinds.iter().map(|&kind| self.device.push_error_scope(kind)).collect();
        let made = make();
        // The innermost comes first.
        let errors = scopes.into_iter().rev().filter_map(|scope| pollster::block_on(scope.pop()));
        errors.last().map_or(Ok(made), Err)
    }

    /// New memory holding `data`.
    ///
    /// # Errors
    ///
    /// As [`Runtime::alloc`].
    pub fn upload(&self, data: &[u8]) -> Result<Allocation, RuntimeError> {
        let slice = self.alloc(data.len() as u64, &[])?;
        if !data.is_empty() {
            let written = self.stream.lock().upload(&self.device, &self.queue, &slice, data);
            if !written {
                return Err(self.out_of_memory(data.len() as u64));
            }
        }
        Ok(slice)
    }

    /// Records a kernel launch.
    ///
    /// # Errors
    ///
    /// When the kernel does not compile on this device, or the device was lost.
    pub fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<(), RuntimeError> {
        if dispatch.groups == 0 {
            return Ok(());
        }
        self.check_lost()?;
        debug_assert!(dispatch.params.len() <= stream::PARAMS_SIZE);
        let interface = Interface {
            inputs: dispatch.inputs.len() as u8,
            outputs: dispatch.outputs.len() as u8,
            params: self.params_in(dispatch.params.len()),
        };
        let (bind_layout, pipeline_layout) = self.layout(interface);
        let pipeline = self.pipeline(dispatch.variant, interface.params, &pipeline_layout)?;
        self.work_done.fetch_add(dispatch.work, Ordering::Relaxed);
        self.stream.lock().dispatch(
            &self.device,
            &self.queue,
            RecordedDispatch {
                variant: dispatch.variant,
                pipeline: &pipeline,
                layout: &bind_layout,
                interface,
                inputs: dispatch.inputs,
                outputs: dispatch.outputs,
                params: dispatch.params,
                grid: fold(dispatch.groups),
                work: dispatch.work,
            },
        );
        Ok(())
    }

    /// Few parameters go with the command where they can: a binding with an offset of its own costs drivers more.
    fn params_in(&self, bytes: usize) -> ParamsIn {
        let fit = self.info.features.immediates && bytes <= IMMEDIATE_BYTES as usize;
        if fit { ParamsIn::Immediates } else { ParamsIn::Uniform }
    }

    fn pipeline(
        &self,
        variant: &Variant,
        params: ParamsIn,
        layout: &wgpu::PipelineLayout,
    ) -> Result<wgpu::ComputePipeline, RuntimeError> {
        let mut pipelines = self.pipelines.lock();
        if let Some(pipeline) = pipelines.get(variant) {
            return Ok(pipeline.clone());
        }
        let failed = |message| RuntimeError::Shader { kernel: variant.to_string(), message };
        let wide = self.software && self.info.features.int64;
        let text =
            expand(variant, Target { compiler: Compiler::HERE, params, wide }).map_err(failed)?;
        let compile = || {
            let module = self.module(variant.source.name, &text);
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
        // What the compiler refuses, and what the driver does.
        let kinds = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::Internal];
        let pipeline =
            self.with_error_scopes(&kinds, compile).map_err(|error| failed(error.to_string()))?;
        log::debug!("compiled {variant}");
        if let Some(cache) = &self.pipeline_cache {
            cache.grew();
        }
        pipelines.insert(variant.clone(), pipeline.clone());
        Ok(pipeline)
    }

    /// The only place where shader modules are made, so that one switch turns every check back on.
    fn module(&self, name: &str, text: &str) -> wgpu::ShaderModule {
        let checks = if self.checked {
            wgpu::ShaderRuntimeChecks::checked()
        } else {
            wgpu::ShaderRuntimeChecks::unchecked()
        };
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let descriptor = wgpu::ShaderModuleDescriptor { label: Some(name), source };
        // SAFETY: the text comes from this crate's own kernels, which keep every index within the
        // buffers they are given and whose loops all end; the debug switch checks exactly that.
        unsafe { self.device.create_shader_module_trusted(descriptor, checks) }
    }

    fn layout(&self, interface: Interface) -> (wgpu::BindGroupLayout, wgpu::PipelineLayout) {
        let Interface { inputs, outputs, params } = interface;
        let mut layouts = self.layouts.lock();
        let make = || {
            let mut kinds = Vec::new();
            if params == ParamsIn::Uniform {
                kinds.push(wgpu::BufferBindingType::Uniform);
            }
            kinds.extend(
                (0..inputs + outputs)
                    .map(|i| wgpu::BufferBindingType::Storage { read_only: i < inputs }),
            );
            let entries: Vec<_> =
                (0..).zip(kinds).map(|(binding, kind)| layout_entry(binding, kind)).collect();
            let bind = self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &entries,
            });
            let pipeline = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&bind)],
                immediate_size: if params == ParamsIn::Immediates { IMMEDIATE_BYTES } else { 0 },
            });
            (bind, pipeline)
        };
        layouts.entry(interface).or_insert_with(make).clone()
    }

    /// Hands recorded work to the GPU without waiting for it.
    pub fn flush(&self) {
        self.stream.lock().submit(&self.device, &self.queue);
    }

    /// Waits until the GPU has finished everything recorded so far.
    ///
    /// # Errors
    ///
    /// When the device was lost, and in a browser, where nothing can wait: the work is handed over all the same.
    pub fn sync(&self) -> Result<(), RuntimeError> {
        let mut stream = self.stream.lock();
        stream.submit(&self.device, &self.queue);
        self.check_can_block()?;
        let waited = self.device.poll(wgpu::PollType::wait_indefinitely());
        stream.finish_all();
        drop(stream);
        self.save_pipeline_cache();
        self.check_lost()?;
        waited.map(|_| ()).map_err(|error| self.readback_error(&error))
    }

    /// An error where the host cannot wait for the GPU.
    pub(crate) fn check_can_block(&self) -> Result<(), RuntimeError> {
        if !CAN_BLOCK {
            return Err(RuntimeError::CannotBlock { device: self.info.name.clone() });
        }
        Ok(())
    }

    /// Writes newly compiled pipelines to the user's cache.
    fn save_pipeline_cache(&self) {
        if let Some(cache) = &self.pipeline_cache {
            cache.save();
        }
    }

    fn readback_error(&self, error: &dyn std::fmt::Display) -> RuntimeError {
        RuntimeError::Readback { device: self.info.name.clone(), message: error.to_string() }
    }
}

/// Whether an environment variable switches something on.
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

/// Folds a count of workgroups into a grid that holds at least as many.
fn fold(groups: u64) -> (u32, u32, u32) {
    let max = u64::from(MAX_GROUPS);
    if groups <= max {
        return (groups as u32, 1, 1);
    }
    let rows = groups.div_ceil(max);
    if rows <= max {
        // As even as possible, so that few workgroups find nothing to do.
        return (groups.div_ceil(rows) as u32, rows as u32, 1);
    }
    (MAX_GROUPS, MAX_GROUPS, rows.div_ceil(max) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_fold_without_losing_a_group() {
        for groups in [1, 65_535, 65_536, 1_000_003, u64::from(MAX_GROUPS) * 65_535 + 1] {
            let (x, y, z) = fold(groups);
            let total = u64::from(x) * u64::from(y) * u64::from(z);
            assert!(total >= groups && x <= MAX_GROUPS && y <= MAX_GROUPS, "{groups}");
        }
        assert_eq!(fold(65_536), (32_768, 2, 1));
    }
}
