//! A wgpu device whose pipelines keep the statistics and the listings of the driver's compiler
//! (`VK_KHR_pipeline_executable_properties`).

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::mem::transmute;
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, Result, bail};
use ash::khr::pipeline_executable_properties as executables;
use ash::vk;
use naga::{AddressSpace, Module, StorageAccess};
use wgpu::hal::api::Vulkan;
use xtask_compilers::kernel::MatrixUnits;

/// A wgpu device on the first Vulkan adapter.
pub struct CapturingDevice {
    pub info: wgpu::AdapterInfo,
    pub features: wgpu::Features,
    matrix_units: Vec<wgpu::CooperativeMatrixProperties>,
    device: wgpu::Device,
    executables: executables::Device,
}

/// What the driver says of a compiled kernel, by the driver's own names.
pub struct Compiled {
    pub statistics: BTreeMap<String, u64>,
    /// Texts, such as the listing of the instructions.
    pub representations: BTreeMap<String, String>,
}

/// The features that the crate requests from adapters.
const FEATURES: wgpu::Features = wgpu::Features::SHADER_F16
    .union(wgpu::Features::SUBGROUP)
    .union(wgpu::Features::IMMEDIATES)
    .union(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
    .union(wgpu::Features::SHADER_INT64);

/// The size of the immediates that the crate requests.
const IMMEDIATE_BYTES: u32 = 128;

/// The driver's function, which [`create_compute_pipelines`] calls.
static DRIVER_FUNCTION: OnceLock<vk::PFN_vkCreateComputePipelines> = OnceLock::new();

/// The pipeline that was created last.
static LAST_PIPELINE: Mutex<vk::Pipeline> = Mutex::new(vk::Pipeline::null());

impl CapturingDevice {
    /// Opens the first Vulkan adapter with the features that the crate requests.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no adapter, or it lacks immediates or the statistics.
    pub fn open() -> Result<Self> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: wgpu::Backends::VULKAN,
            flags: wgpu::InstanceFlags::empty(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
        let adapter = adapters.into_iter().next().context("the Vulkan driver shows no adapter")?;
        let features = adapter.features() & FEATURES;
        let limits = wgpu::Limits { max_immediate_size: IMMEDIATE_BYTES, ..adapter.limits() };
        let (opened, executables) = open_device(&adapter, features, &limits)?;
        let descriptor = wgpu::DeviceDescriptor {
            required_features: features,
            required_limits: limits,
            // SAFETY: pipelines are compiled but never dispatched.
            experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
            ..wgpu::DeviceDescriptor::default()
        };
        // SAFETY: the device was created from this adapter, with these features and limits.
        let (device, _queue) =
            unsafe { adapter.create_device_from_hal::<Vulkan>(opened, &descriptor) }?;
        let matrix_units = adapter.cooperative_matrix_properties();
        Ok(Self { info: adapter.get_info(), features, matrix_units, device, executables })
    }

    /// Returns whether the adapter has matrix units that add up in f32, and subgroups of their size.
    pub fn has_matrix_units(&self, units: &MatrixUnits) -> bool {
        use wgpu::CooperativeScalarType as Scalar;
        let ab_type = if units.bits == 16 { Scalar::F16 } else { Scalar::F32 };
        let is_it = |unit: &wgpu::CooperativeMatrixProperties| {
            [unit.m_size, unit.n_size, unit.k_size] == [units.size; 3]
                && (unit.ab_type, unit.cr_type) == (ab_type, Scalar::F32)
        };
        // AMD's drivers choose the larger of two sizes.
        units.subgroup_size == self.info.subgroup_max_size && self.matrix_units.iter().any(is_it)
    }

    /// Compiles a kernel as the crate does without checks. `module` is its text, parsed.
    ///
    /// # Errors
    ///
    /// Returns an error if wgpu or the driver reject the kernel.
    pub fn compile(&self, text: &str, module: &Module) -> Result<Compiled> {
        let filters = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::Internal];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let pipeline = self.create_pipeline(text, module);
        // Scopes must be popped innermost first.
        for scope in scopes.into_iter().rev() {
            if let Some(error) = pollster::block_on(scope.pop()) {
                bail!("{error}");
            }
        }
        let raw = *LAST_PIPELINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let compiled = self.read_executable(raw);
        // The pipeline must exist until here.
        drop(pipeline);
        compiled
    }

    fn create_pipeline(&self, text: &str, module: &Module) -> wgpu::ComputePipeline {
        let entries: Vec<_> = module.global_variables.iter().filter_map(layout_entry).collect();
        let bind_group = self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &entries,
        });
        let has_immediates = module
            .global_variables
            .iter()
            .any(|(_, variable)| variable.space == AddressSpace::Immediate);
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&bind_group)],
            immediate_size: if has_immediates { IMMEDIATE_BYTES } else { 0 },
        });
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let descriptor = wgpu::ShaderModuleDescriptor { label: None, source };
        let checks = wgpu::ShaderRuntimeChecks::unchecked();
        // SAFETY: the pipeline is compiled but never dispatched.
        let module = unsafe { self.device.create_shader_module_trusted(descriptor, checks) };
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &[],
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        })
    }

    /// Returns the statistics and the representations of a compute pipeline, which has one
    /// executable.
    fn read_executable(&self, pipeline: vk::Pipeline) -> Result<Compiled> {
        let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline);
        // SAFETY: the pipeline exists and was created with the flags of `create_compute_pipelines`.
        let statistics = unsafe { self.executables.get_pipeline_executable_statistics(&info) }?;
        Ok(Compiled {
            statistics: statistics
                .iter()
                .map(|statistic| (text(&statistic.name), statistic_value(statistic)))
                .collect(),
            representations: self.read_representations(&info)?,
        })
    }

    fn read_representations(
        &self,
        info: &vk::PipelineExecutableInfoKHR<'_>,
    ) -> Result<BTreeMap<String, String>> {
        let read = self.executables.fp().get_pipeline_executable_internal_representations_khr;
        let device = self.executables.device();
        // SAFETY: as above; the call without texts returns their sizes.
        let mut found =
            unsafe { self.executables.get_pipeline_executable_internal_representations(info) }?;
        let mut texts: Vec<Vec<u8>> = found.iter().map(|entry| vec![0; entry.data_size]).collect();
        for (entry, text) in found.iter_mut().zip(&mut texts) {
            entry.p_data = text.as_mut_ptr().cast();
        }
        let mut count = u32::try_from(found.len())?;
        // SAFETY: every entry points to memory of the size that it states.
        unsafe { read(device, info, &raw mut count, found.as_mut_ptr()) }.result()?;
        let entries = found.iter().zip(texts);
        Ok(entries
            .map(|(entry, text)| {
                let text = String::from_utf8_lossy(&text);
                (self::text(&entry.name), text.trim_end_matches('\0').to_owned())
            })
            .collect())
    }
}

/// Opens the device as wgpu does, with the extension, and with [`create_compute_pipelines`] in
/// place of the driver's function.
fn open_device(
    adapter: &wgpu::Adapter,
    features: wgpu::Features,
    limits: &wgpu::Limits,
) -> Result<(wgpu::hal::OpenDevice<Vulkan>, executables::Device)> {
    // SAFETY: the handle is not destroyed here.
    let adapter = unsafe { adapter.as_hal::<Vulkan>() }.context("the adapter is not Vulkan's")?;
    let instance = adapter.shared_instance().raw_instance();
    let mut extensions = adapter.required_device_extensions(features);
    let mut device_features = adapter.physical_device_features(&extensions, features);
    extensions.push(executables::NAME);
    let names: Vec<*const c_char> = extensions.iter().map(|name| name.as_ptr()).collect();
    let family = 0;
    let queues =
        [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
    let mut executable_features =
        vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default()
            .pipeline_executable_info(true);
    let info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&names)
        .push_next(&mut executable_features);
    let info = device_features.add_to_device_create(info);
    // SAFETY: the extensions and features are those of wgpu and one more, which the driver checks.
    let raw = unsafe { instance.create_device(adapter.raw_physical_device(), &info, None) }
        .context("cannot open the device with VK_KHR_pipeline_executable_properties")?;
    let executables = executables::Device::new(instance, &raw);
    let load = |name: &CStr| -> *const c_void {
        // SAFETY: the handle is valid; a function pointer is as large as a pointer.
        let function: *const c_void = unsafe {
            transmute((instance.fp_v1_0().get_device_proc_addr)(raw.handle(), name.as_ptr()))
        };
        if name != c"vkCreateComputePipelines" {
            return function;
        }
        // SAFETY: this is the type of the function of this name.
        DRIVER_FUNCTION.get_or_init(|| unsafe { transmute(function) });
        create_compute_pipelines as *const c_void
    };
    // SAFETY: `load` returns the functions of this device.
    let device = unsafe { ash::Device::load_with(load, raw.handle()) };
    let hints = wgpu::MemoryHints::Performance;
    // SAFETY: the device has these extensions and features, and wgpu takes ownership of it.
    let opened = unsafe {
        adapter.device_from_raw(device, None, &extensions, features, limits, &hints, family, 0)
    }?;
    Ok((opened, executables))
}

/// Calls the driver's function of this name with the flags that keep statistics and listings.
unsafe extern "system" fn create_compute_pipelines(
    device: vk::Device,
    cache: vk::PipelineCache,
    count: u32,
    infos: *const vk::ComputePipelineCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    pipelines: *mut vk::Pipeline,
) -> vk::Result {
    let Some(driver_function) = DRIVER_FUNCTION.get() else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: the caller passes `count` descriptions, and room for as many pipelines.
    unsafe {
        let mut infos = std::slice::from_raw_parts(infos, count as usize).to_vec();
        for info in &mut infos {
            info.flags |= vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR
                | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR;
        }
        let result = driver_function(device, cache, count, infos.as_ptr(), allocator, pipelines);
        let created = std::slice::from_raw_parts(pipelines, count as usize);
        if let Some(last) = created.last() {
            *LAST_PIPELINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = *last;
        }
        result
    }
}

/// Returns the layout entry of a buffer as the crate's runtime declares it; `None` for variables
/// without a binding.
fn layout_entry(
    (_, variable): (naga::Handle<naga::GlobalVariable>, &naga::GlobalVariable),
) -> Option<wgpu::BindGroupLayoutEntry> {
    let binding = variable.binding.as_ref()?.binding;
    let ty = match variable.space {
        AddressSpace::Storage { access } => {
            wgpu::BufferBindingType::Storage { read_only: !access.contains(StorageAccess::STORE) }
        }
        _ => wgpu::BufferBindingType::Uniform,
    };
    Some(wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: ty == wgpu::BufferBindingType::Uniform,
            min_binding_size: None,
        },
        count: None,
    })
}

/// Returns the text in a Vulkan array of characters.
fn text(characters: &[c_char]) -> String {
    let bytes = characters.iter().map(|character| character.cast_unsigned());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a statistic as an integer. The figures of interest are counts.
fn statistic_value(statistic: &vk::PipelineExecutableStatisticKHR<'_>) -> u64 {
    use vk::PipelineExecutableStatisticFormatKHR as Format;
    let value = statistic.value;
    // SAFETY: the format says which field of the union is valid.
    unsafe {
        match statistic.format {
            Format::BOOL32 => u64::from(value.b32),
            Format::INT64 => value.i64.max(0).cast_unsigned(),
            Format::FLOAT64 => value.f64.max(0.0) as u64,
            _ => value.u64,
        }
    }
}
