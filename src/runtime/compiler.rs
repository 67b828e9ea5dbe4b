//! The compiler: makes pipelines from kernels, each once.
//!
//! A kernel has two forms. The plain form uses fewer features, for drivers that refuse the fast
//! form. Which kernels a driver refused is kept in a file, and they are compiled in their plain form
//! from then on. If the refusal loses the device, that is from its next opening on.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::cache::checksum;
use super::choices::Choices;
use super::faults::Fault;
use super::gpu::{Gpu, loses_device};
use super::params::{LAUNCH_ALIGN, PARAMS_SIZE};
use super::pipeline_cache::PipelineCache;
use super::{Compiler, Expansion, ParamsBinding, RuntimeError, Source, Target, Variant, expand};
use crate::device::{CAN_BLOCK, IMMEDIATE_BYTES};
use crate::variables;

/// The bindings of a kernel. Kernels with equal interfaces share layouts and bind groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Interface {
    /// Number of input buffers.
    pub inputs: u8,
    /// Number of output buffers.
    pub outputs: u8,
    pub params: ParamsBinding,
}

/// A compiled kernel: all that a launch needs besides its operands.
#[derive(Debug)]
pub(crate) struct Plan {
    /// A number that no other plan of the device has.
    pub id: u32,
    pub variant: Variant,
    pub interface: Interface,
    pub pipeline: wgpu::ComputePipeline,
    pub bind_group_layout: wgpu::BindGroupLayout,
    /// The size of an element of each operand's binding in bytes, as a power of two.
    pub element_shifts: SmallVec<[u8; 8]>,
    /// Whether exactly the operands' ranges are bound, not whole buffers.
    pub exact_bindings: bool,
}

/// How a kernel is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Without checks where the kernel is trusted, with immediates where they fit, in the
    /// pipeline cache.
    Fast,
    /// With all checks, with parameters in a uniform buffer, without the pipeline cache.
    Plain,
}

/// A program whose ops differ from step to step without end would compile without end. A training
/// step needs tens of generated kernels.
const MAX_GENERATED: usize = 1024;

/// The choice for a kernel that the driver refused in its fast form.
const PLAIN: &str = "plain";
/// The choice for a kernel that the driver refused in both forms, with the loss of the device.
const NONE: &str = "none";

/// The layouts of an interface.
#[derive(Debug, Clone)]
struct Layouts {
    bind_group: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
}

/// A compilation, finished or in progress.
type Compiling = Arc<OnceLock<Result<Arc<Plan>, RuntimeError>>>;

/// Compiles the kernels of a device.
pub(crate) struct KernelCompiler {
    layouts: Mutex<FxHashMap<Interface, Layouts>>,
    compilations: Mutex<FxHashMap<Variant, Compiling>>,
    cache: Option<PipelineCache>,
    /// The kernels that the driver refused in their fast form, by [`refusal_name`].
    refusals: Choices,
    next_plan_id: AtomicU32,
    /// Number of compiled kernels that were generated for a program.
    generated: AtomicUsize,
    /// The maximum number of generated kernels.
    max_generated: AtomicUsize,
    /// Whether shaders are compiled with all runtime checks.
    pub checked: bool,
    /// Whether vec4 loads and stores move two 64-bit words.
    loads_u64: bool,
    /// Whether the WGSL of each kernel is printed: `BURN_WGSL_PRINT_KERNELS`.
    prints: bool,
}

impl KernelCompiler {
    pub fn new(gpu: &Gpu, checked: bool, software: bool) -> Self {
        Self {
            layouts: Mutex::default(),
            compilations: Mutex::default(),
            cache: PipelineCache::open(gpu),
            refusals: Choices::open(&gpu.info, "refusals"),
            next_plan_id: AtomicU32::new(0),
            generated: AtomicUsize::new(0),
            max_generated: AtomicUsize::new(MAX_GENERATED),
            checked,
            loads_u64: software && gpu.info.features.int64,
            prints: variables::PRINT_KERNELS.is_on(),
        }
    }

    /// Compiles a kernel, unless it was compiled before. If another thread is compiling it, waits
    /// for that thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not compile on this device.
    pub fn compile(
        &self,
        gpu: &Gpu,
        variant: Variant,
        operands: (usize, usize),
        params_len: usize,
    ) -> Result<Arc<Plan>, RuntimeError> {
        let compilation = self.compilations.lock().entry(variant.clone()).or_default().clone();
        let plan = compilation
            .get_or_init(|| self.create_plan(gpu, variant.clone(), operands, params_len))
            .clone();
        if plan.is_err() {
            // The next launch tries again.
            self.compilations.lock().remove(&variant);
        }
        plan
    }

    /// Compiles a kernel in its fast form, and in its plain form if the driver refuses that.
    fn create_plan(
        &self,
        gpu: &Gpu,
        variant: Variant,
        operands: (usize, usize),
        params_len: usize,
    ) -> Result<Arc<Plan>, RuntimeError> {
        if gpu.faults.strikes(Fault::Compile) {
            let message = "a test failed it".to_owned();
            return Err(RuntimeError::Shader { kernel: variant.to_string(), message });
        }
        // A browser reports errors later, and its compiler is another.
        if !CAN_BLOCK {
            return self.create_form(gpu, variant, operands, params_len, Form::Fast);
        }
        let create = |form, next| {
            let create = || self.create_form(gpu, variant.clone(), operands, params_len, form);
            let (plan, lost) = loses_device(create);
            if lost {
                self.remember_fatal(gpu, &variant, next);
            }
            // A pipeline of a lost device is not valid.
            gpu.lost_error().map_or(plan, Err)
        };
        let plain = || create(Form::Plain, NONE);
        if !self.refusals.is_empty()
            && let Some(choice) = self.refusals.get(&refusal_name(&variant))
        {
            if choice == NONE {
                let message = "the driver refused both of its forms".to_owned();
                return Err(RuntimeError::Shader { kernel: variant.to_string(), message });
            }
            return plain();
        }
        let fast = create(Form::Fast, PLAIN);
        let Err(error) = fast else { return fast };
        if matches!(error, RuntimeError::Wgsl { .. }) {
            return Err(error);
        }
        gpu.check()?;
        let plain = plain().map_err(|_| error.clone())?;
        log::warn!("{error}; its plain form is used from now on, which is slower");
        self.refusals.store(&refusal_name(&variant), PLAIN);
        Ok(plain)
    }

    /// Remembers what to do the next time with a kernel whose compilation lost the device: wgpu
    /// takes any error of a Vulkan driver's compiler for a loss.
    fn remember_fatal(&self, gpu: &Gpu, variant: &Variant, next: &str) {
        let reason = gpu.lost_error().map(|error| error.to_string()).unwrap_or_default();
        // Says nothing about the kernel.
        if reason.to_lowercase().contains("memory") {
            return;
        }
        log::warn!("{variant}: the driver refused it, and the device was lost");
        self.refusals.store(&refusal_name(variant), next);
    }

    /// Returns the kernels that the driver refused in their fast form, with how they are compiled.
    pub fn refusals(&self) -> &Choices {
        &self.refusals
    }

    /// Returns whether more kernels should be generated for programs.
    pub fn may_generate(&self) -> bool {
        self.generated.load(Ordering::Relaxed) < self.max_generated.load(Ordering::Relaxed)
    }

    /// Returns the number of kernels that were generated for programs.
    pub fn generated(&self) -> usize {
        self.generated.load(Ordering::Relaxed)
    }

    /// Sets the maximum number of generated kernels.
    pub fn set_max_generated(&self, count: usize) {
        self.max_generated.store(count, Ordering::Relaxed);
    }

    fn create_form(
        &self,
        gpu: &Gpu,
        variant: Variant,
        (inputs, outputs): (usize, usize),
        params_len: usize,
        form: Form,
    ) -> Result<Arc<Plan>, RuntimeError> {
        let fast = form == Form::Fast;
        let shader_error = |message| RuntimeError::Shader { kernel: variant.to_string(), message };
        let params_len = padded_params_len(params_len, inputs + outputs);
        if params_len > PARAMS_SIZE {
            return Err(shader_error(format!(
                "its parameters have {params_len} bytes; the maximum is {PARAMS_SIZE}"
            )));
        }
        let interface = Interface {
            inputs: inputs as u8,
            outputs: outputs as u8,
            params: if fast { params_binding(gpu, params_len) } else { ParamsBinding::Uniform },
        };
        if fast && gpu.faults.strikes(Fault::RefuseAndLose) {
            gpu.lose("a test refused a kernel");
        }
        if fast && gpu.faults.strikes(Fault::Refuse) {
            return Err(shader_error("a test refused it".to_owned()));
        }
        let target = Target {
            compiler: Compiler::CURRENT,
            params: interface.params,
            loads_u64: fast && self.loads_u64,
        };
        let expansion = expand(&variant, target).map_err(shader_error)?;
        let Expansion { text, operands, .. } = &expansion;
        if self.prints {
            // `eprintln!` panics if standard error is closed.
            let text = format_args!("// {variant}\n{text}\n");
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), text);
        }
        if operands.len() != inputs + outputs {
            let declared = operands.len();
            return Err(shader_error(format!(
                "it declares {declared} operands, but {} were passed",
                inputs + outputs
            )));
        }
        let layouts = self.layouts(gpu, interface);
        let exact_bindings = self.checked || !variant.source.is_trusted();
        let checked = exact_bindings || !fast;
        if let Some(file) = variant.source.program_file() {
            check_program(gpu, &variant, file, &expansion, checked)?;
        }
        let pipeline =
            self.create_pipeline(gpu, &variant, &expansion, &layouts, (checked, fast))?;
        log::debug!("compiled {variant}");
        if variant.ops.len() > 1 {
            self.generated.fetch_add(1, Ordering::Relaxed);
        }
        let element_sizes = operands.iter().map(|operand| operand.element_size);
        Ok(Arc::new(Plan {
            id: self.next_plan_id.fetch_add(1, Ordering::Relaxed),
            variant,
            interface,
            pipeline,
            bind_group_layout: layouts.bind_group,
            exact_bindings,
            element_shifts: element_sizes.map(|size| size.trailing_zeros() as u8).collect(),
        }))
    }

    /// Creates a pipeline, with the driver's and naga's checks if it is `checked`, and through the cache if it is the
    /// fast form.
    fn create_pipeline(
        &self,
        gpu: &Gpu,
        variant: &Variant,
        expansion: &Expansion,
        layouts: &Layouts,
        (checked, fast): (bool, bool),
    ) -> Result<wgpu::ComputePipeline, RuntimeError> {
        let cache = self.cache.as_ref().filter(|_| fast);
        let compile = || {
            let module = create_shader_module(gpu, variant.source, &expansion.text, checked);
            gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(variant.source.name),
                layout: Some(&layouts.pipeline),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &[],
                    zero_initialize_workgroup_memory: checked,
                },
                cache: cache.map(PipelineCache::raw),
            })
        };
        // `Validation` covers errors of the shader compiler, `Internal` those of the driver.
        let filters = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::Internal];
        let pipeline = gpu.with_error_scopes(&filters, compile).map_err(|error| {
            match (&error, variant.source.program_file()) {
                (wgpu::Error::Validation { .. }, Some(file)) => {
                    program_error(variant, file.to_owned(), error.to_string(), expansion)
                }
                _ => {
                    RuntimeError::Shader { kernel: variant.to_string(), message: error.to_string() }
                }
            }
        })?;
        if let Some(cache) = cache {
            cache.mark_dirty();
        }
        Ok(pipeline)
    }

    /// Returns the layouts of an interface, created at first use.
    fn layouts(&self, gpu: &Gpu, interface: Interface) -> Layouts {
        let mut layouts = self.layouts.lock();
        layouts.entry(interface).or_insert_with(|| create_layouts(gpu, interface)).clone()
    }

    /// Writes newly compiled pipelines to the pipeline cache file.
    pub fn save(&self) {
        if let Some(cache) = &self.cache {
            cache.save();
        }
    }
}

/// Returns the name of a kernel in the file of refusals: the name of its shader, and a checksum of
/// its definitions.
fn refusal_name(variant: &Variant) -> String {
    let mut definitions = variant.to_string();
    // A program may have a kernel of the same name, and may change its text.
    if variant.source.program_file().is_some() {
        definitions.push_str(variant.source.text);
    }
    format!("{}-{:016x}", variant.source.name, checksum(definitions.as_bytes()))
}

/// Returns an error with the file and the line if the text of a program's kernel is not valid. Browsers report that
/// later.
fn check_program(
    gpu: &Gpu,
    variant: &Variant,
    file: &str,
    expansion: &Expansion,
    checked: bool,
) -> Result<(), RuntimeError> {
    if !CAN_BLOCK {
        return Ok(());
    }
    let mut found = None;
    let created = gpu.with_error_scopes(&[wgpu::ErrorFilter::Validation], || {
        let module = create_shader_module(gpu, variant.source, &expansion.text, checked);
        found = Some(pollster::block_on(module.get_compilation_info()));
    });
    let Err(error) = created else { return Ok(()) };
    let messages = found.map_or(Vec::new(), |info| info.messages);
    let line = messages.iter().find_map(|message| Some(message.location?.line_number as usize));
    let location = match line.and_then(|line| expansion.origin(line)) {
        Some((name, line)) if name == variant.source.name => format!("{file}:{line}"),
        Some((fragment, line)) => format!("{fragment}.wgsl:{line}, included by {file}"),
        None => file.to_owned(),
    };
    let message = messages.into_iter().next().map_or(error.to_string(), |first| first.message);
    Err(program_error(variant, location, message, expansion))
}

fn program_error(
    variant: &Variant,
    location: String,
    message: String,
    expansion: &Expansion,
) -> RuntimeError {
    let lines = expansion.text.lines().zip(1..);
    let text = lines.map(|(line, number)| format!("{number:5} {line}\n")).collect();
    RuntimeError::Wgsl { kernel: variant.to_string(), location, message, text }
}

/// Creates a shader module. All modules are created here.
fn create_shader_module(
    gpu: &Gpu,
    source: &Source,
    text: &str,
    checked: bool,
) -> wgpu::ShaderModule {
    let label = Some(source.name);
    let descriptor =
        wgpu::ShaderModuleDescriptor { label, source: wgpu::ShaderSource::Wgsl(text.into()) };
    if checked {
        return gpu.device.create_shader_module(descriptor);
    }
    let checks = wgpu::ShaderRuntimeChecks::unchecked();
    // SAFETY: `Source::trusted` requires that the kernels keep every index within their operands,
    // and end all their loops.
    unsafe { gpu.device.create_shader_module_trusted(descriptor, checks) }
}

/// Returns the size of `len` bytes of parameters with what the runtime appends for a launch.
pub(super) fn padded_params_len(len: usize, operands: usize) -> usize {
    len.next_multiple_of(LAUNCH_ALIGN) + size_of::<u32>() * (1 + operands)
}

/// Returns how a kernel receives its parameters, including what the runtime appends.
///
/// Immediates are used where they fit, because a dynamic uniform offset costs the driver more.
fn params_binding(gpu: &Gpu, len: usize) -> ParamsBinding {
    let fit = gpu.info.features.immediates && len <= IMMEDIATE_BYTES as usize;
    if fit { ParamsBinding::Immediates } else { ParamsBinding::Uniform }
}

fn create_layouts(gpu: &Gpu, interface: Interface) -> Layouts {
    let Interface { inputs, outputs, params } = interface;
    let mut types: SmallVec<[wgpu::BufferBindingType; 9]> = SmallVec::new();
    if params == ParamsBinding::Uniform {
        types.push(wgpu::BufferBindingType::Uniform);
    }
    types.extend(
        (0..inputs + outputs).map(|i| wgpu::BufferBindingType::Storage { read_only: i < inputs }),
    );
    let entries: SmallVec<[wgpu::BindGroupLayoutEntry; 9]> =
        (0..).zip(types).map(|(binding, ty)| layout_entry(binding, ty)).collect();
    let bind_group = gpu.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &entries,
    });
    let immediate_size = match params {
        ParamsBinding::Immediates => IMMEDIATE_BYTES,
        ParamsBinding::Uniform => 0,
    };
    let pipeline = gpu.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&bind_group)],
        immediate_size,
    });
    Layouts { bind_group, pipeline }
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
