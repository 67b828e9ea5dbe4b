//! Dispatches a kernel twice without a barrier between the dispatches, which write to the same
//! buffer. The validation layer must report the mistake.
//!
//! wgpu inserts the barriers itself, so this program uses the layer below it, `wgpu::hal`.

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    linux::run()
}

#[cfg(not(target_os = "linux"))]
fn main() -> anyhow::Result<()> {
    anyhow::bail!("missing-barriers runs on Linux only, as the validation layer's packages do")
}

#[cfg(target_os = "linux")]
mod linux {
    use std::borrow::Cow;

    use anyhow::{Context, Result};
    use wgpu::hal::api::Vulkan;
    use wgpu::hal::{self, CommandEncoder as _, Device as _, Queue as _};
    use wgpu::naga;

    /// The size of the buffer in bytes.
    const SIZE: u64 = 256;

    const KERNEL: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3u) { out[id.x] = id.x; }";

    /// Runs the kernel on the first Vulkan adapter.
    pub fn run() -> Result<()> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: wgpu::Backends::VULKAN,
            flags: wgpu::InstanceFlags::empty().with_env(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
        let adapter = adapters.into_iter().next().context("the Vulkan driver shows no adapter")?;
        let descriptor = wgpu::DeviceDescriptor::default();
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))?;
        // SAFETY: the handles are used while `device` and `queue` exist, and not destroyed here.
        let (Some(device), Some(queue)) =
            (unsafe { device.as_hal::<Vulkan>() }, unsafe { queue.as_hal::<Vulkan>() })
        else {
            anyhow::bail!("the device is not Vulkan's")
        };
        // SAFETY: no other thread uses the device.
        unsafe { dispatch_twice(&device, &queue) }
    }

    /// Dispatches the kernel twice in one command buffer, and waits for the end.
    ///
    /// # Safety
    ///
    /// No other thread may use the device.
    unsafe fn dispatch_twice(
        device: &hal::vulkan::Device,
        queue: &hal::vulkan::Queue,
    ) -> Result<()> {
        // SAFETY: the objects are of this device, and destroyed after their use. Both dispatches
        // write the same values, so their order does not matter.
        unsafe {
            let buffer = device.create_buffer(&hal::BufferDescriptor {
                label: None,
                size: SIZE,
                usage: wgpu::wgt::BufferUses::STORAGE_READ_WRITE,
                memory_flags: hal::MemoryFlags::empty(),
            })?;
            let layout = device.create_bind_group_layout(&hal::BindGroupLayoutDescriptor {
                label: None,
                flags: hal::BindGroupLayoutFlags::empty(),
                entries: &[wgpu::BindGroupLayoutEntry {
                    binding: 0,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: wgpu::BindingType::Buffer {
                        ty: wgpu::BufferBindingType::Storage { read_only: false },
                        has_dynamic_offset: false,
                        min_binding_size: None,
                    },
                    count: None,
                }],
            })?;
            let bind_group = device.create_bind_group(&hal::BindGroupDescriptor {
                label: None,
                layout: &layout,
                buffers: &[hal::BufferBinding::new_unchecked(
                    &buffer,
                    0,
                    std::num::NonZeroU64::new(SIZE),
                )],
                samplers: &[],
                textures: &[],
                entries: &[hal::BindGroupEntry { binding: 0, resource_index: 0, count: 1 }],
                acceleration_structures: &[],
                external_textures: &[],
            })?;
            let pipeline_layout =
                device.create_pipeline_layout(&hal::PipelineLayoutDescriptor {
                    label: None,
                    flags: hal::PipelineLayoutFlags::empty(),
                    bind_group_layouts: &[Some(&layout)],
                    immediate_size: 0,
                })?;
            let module = create_module(device)?;
            let pipeline = device.create_compute_pipeline(&hal::ComputePipelineDescriptor {
                label: None,
                layout: &pipeline_layout,
                stage: hal::ProgrammableStage {
                    module: &module,
                    entry_point: "main",
                    constants: &Default::default(),
                    zero_initialize_workgroup_memory: false,
                },
                cache: None,
            })?;
            let mut encoder = device
                .create_command_encoder(&hal::CommandEncoderDescriptor { label: None, queue })?;
            encoder.begin_encoding(None)?;
            encoder.begin_compute_pass(&hal::ComputePassDescriptor {
                label: None,
                timestamp_writes: None,
            });
            encoder.set_compute_pipeline(&pipeline);
            encoder.set_bind_group(&pipeline_layout, 0, &bind_group, &[]);
            encoder.dispatch_workgroups([1, 1, 1]);
            // Here wgpu would insert a barrier.
            encoder.dispatch_workgroups([1, 1, 1]);
            encoder.end_compute_pass();
            let commands = encoder.end_encoding()?;
            let fence = device.create_fence()?;
            queue.submit(&[&commands], &[], (&fence, 1))?;
            device.wait(&fence, 1, None)?;
            encoder.reset_all([commands].into_iter());
            drop(encoder);
            device.destroy_fence(fence);
            device.destroy_compute_pipeline(pipeline);
            device.destroy_shader_module(module);
            device.destroy_pipeline_layout(pipeline_layout);
            device.destroy_bind_group(bind_group);
            device.destroy_bind_group_layout(layout);
            device.destroy_buffer(buffer);
        }
        Ok(())
    }

    fn create_module(device: &hal::vulkan::Device) -> Result<hal::vulkan::ShaderModule> {
        let module = naga::front::wgsl::parse_str(KERNEL)?;
        let flags = naga::valid::ValidationFlags::all();
        let capabilities = naga::valid::Capabilities::empty();
        let info = naga::valid::Validator::new(flags, capabilities).validate(&module)?;
        let shader = hal::NagaShader { module: Cow::Owned(module), info, debug_source: None };
        let descriptor = hal::ShaderModuleDescriptor {
            label: None,
            runtime_checks: wgpu::ShaderRuntimeChecks::unchecked(),
        };
        // SAFETY: the kernel stays within its buffer.
        Ok(unsafe { device.create_shader_module(&descriptor, hal::ShaderInput::Naga(shader)) }?)
    }
}
