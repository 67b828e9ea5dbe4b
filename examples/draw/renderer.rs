//! A renderer without a window: a wgpu program that knows nothing of Burn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use burn_wgsl::interop::{self, wgpu};

/// Width and height of a frame in pixels. A row is a multiple of 256 bytes.
pub const FRAME: [u32; 2] = [512, 272];

pub struct Renderer {
    pub adapter: wgpu::Adapter,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pipeline: wgpu::RenderPipeline,
    sampler: wgpu::Sampler,
    progress: wgpu::Buffer,
    target: wgpu::Texture,
    errors: Arc<AtomicUsize>,
}

impl Renderer {
    /// Opens the device. It needs nothing that a window would not offer.
    pub async fn new() -> Result<Self> {
        let descriptor = wgpu::InstanceDescriptor::new_without_display_handle().with_env();
        let instance = wgpu::Instance::new(descriptor);
        let options = wgpu::RequestAdapterOptions::default();
        let adapter = instance.request_adapter(&options).await.context("there is no GPU")?;
        let (required_features, required_limits) = interop::requirements(&adapter);
        let device = wgpu::DeviceDescriptor {
            required_features,
            required_limits,
            ..wgpu::DeviceDescriptor::default()
        };
        let (device, queue) = adapter.request_device(&device).await.context("the GPU is busy")?;
        let errors = Arc::new(AtomicUsize::new(0));
        device.on_uncaptured_error(Arc::new({
            let errors = errors.clone();
            move |error| {
                eprintln!("{error}");
                errors.fetch_add(1, Ordering::Relaxed);
            }
        }));
        let format = wgpu::TextureFormat::Rgba8Unorm;
        let module = device.create_shader_module(wgpu::include_wgsl!("picture.wgsl"));
        let pipeline = device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
            label: Some("pictures"),
            layout: None,
            vertex: wgpu::VertexState {
                module: &module,
                entry_point: Some("corner"),
                compilation_options: Default::default(),
                buffers: &[],
            },
            fragment: Some(wgpu::FragmentState {
                module: &module,
                entry_point: Some("color"),
                compilation_options: Default::default(),
                targets: &[Some(format.into())],
            }),
            primitive: Default::default(),
            depth_stencil: None,
            multisample: Default::default(),
            multiview_mask: None,
            cache: None,
        });
        let sampler = device.create_sampler(&wgpu::SamplerDescriptor {
            mag_filter: wgpu::FilterMode::Linear,
            ..wgpu::SamplerDescriptor::default()
        });
        let progress = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("progress"),
            size: 16,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let usage = wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC;
        let target = texture(&device, FRAME, usage);
        Ok(Self { adapter, device, queue, pipeline, sampler, progress, target, errors })
    }

    /// Creates a texture for a picture.
    pub fn picture(&self, side: usize) -> wgpu::Texture {
        let usage = wgpu::TextureUsages::TEXTURE_BINDING | wgpu::TextureUsages::COPY_DST;
        texture(&self.device, [side as u32; 2], usage)
    }

    /// Draws a frame: the wanted and the painted picture, and the progress from 0 to 1.
    pub fn draw(&self, wanted: &wgpu::Texture, painted: &wgpu::Texture, progress: f32) {
        self.queue.write_buffer(&self.progress, 0, &progress.to_ne_bytes());
        let [wanted, painted] =
            [wanted, painted].map(|texture| texture.create_view(&Default::default()));
        let resources = [
            self.progress.as_entire_binding(),
            wgpu::BindingResource::TextureView(&wanted),
            wgpu::BindingResource::TextureView(&painted),
            wgpu::BindingResource::Sampler(&self.sampler),
        ];
        let entries: Vec<_> = (0..)
            .zip(resources)
            .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource })
            .collect();
        let bindings = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let view = self.target.create_view(&Default::default());
        let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
            color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                view: &view,
                depth_slice: None,
                resolve_target: None,
                ops: wgpu::Operations::default(),
            })],
            ..wgpu::RenderPassDescriptor::default()
        });
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &bindings, &[]);
        pass.draw(0..3, 0..1);
        drop(pass);
        self.queue.submit([encoder.finish()]);
    }

    /// Returns the pixels of the last frame.
    pub fn read_frame(&self) -> Result<Vec<u8>> {
        let [width, height] = FRAME;
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("frame"),
            size: u64::from(width * height * 4),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let layout = wgpu::TexelCopyBufferLayout {
            offset: 0,
            bytes_per_row: Some(width * 4),
            rows_per_image: None,
        };
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_texture_to_buffer(
            self.target.as_image_copy(),
            wgpu::TexelCopyBufferInfo { buffer: &buffer, layout },
            self.target.size(),
        );
        self.queue.submit([encoder.finish()]);
        buffer.slice(..).map_async(wgpu::MapMode::Read, |_| {});
        self.device.poll(wgpu::PollType::wait_indefinitely())?;
        let errors = self.errors.load(Ordering::Relaxed);
        ensure!(errors == 0, "the device reported {errors} errors");
        Ok(buffer.slice(..).get_mapped_range()?.to_vec())
    }
}

fn texture(
    device: &wgpu::Device,
    [width, height]: [u32; 2],
    usage: wgpu::TextureUsages,
) -> wgpu::Texture {
    device.create_texture(&wgpu::TextureDescriptor {
        label: None,
        size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Rgba8Unorm,
        usage,
        view_formats: &[],
    })
}
