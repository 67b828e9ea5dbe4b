//! Devices, buffers and textures of the program.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData, TensorPrimitive};
use burn_wgsl::interop::{self, InteropError, wgpu};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, WgslTensor, autocast};

use crate::common;

/// A device of this program, with its callbacks.
struct Host {
    adapter: wgpu::Adapter,
    device: wgpu::Device,
    queue: wgpu::Queue,
    errors: Arc<AtomicUsize>,
}

impl Host {
    /// Opens a device with the limits and features that kernels like best, or with those of WebGPU. `None` without a
    /// GPU.
    fn new(preferred: bool) -> Option<Self> {
        common::gpus();
        let descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        let instance = wgpu::Instance::new(descriptor);
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
        let Some(adapter) = adapters.into_iter().next() else {
            let required = std::env::var("BURN_WGSL_TEST_REQUIRE").unwrap_or_default();
            assert!(required.is_empty(), "no Vulkan adapter");
            eprintln!("skipped: no Vulkan adapter");
            return None;
        };
        Some(Self::open(adapter, preferred))
    }

    /// Opens a device of an adapter.
    fn open(adapter: wgpu::Adapter, preferred: bool) -> Self {
        let mut descriptor = wgpu::DeviceDescriptor::default();
        if preferred {
            (descriptor.required_features, descriptor.required_limits) =
                interop::requirements(&adapter);
        }
        let opened = pollster::block_on(adapter.request_device(&descriptor));
        let (device, queue) = opened.expect("the device opens");
        let errors = Arc::new(AtomicUsize::new(0));
        device.on_uncaptured_error(Arc::new({
            let errors = errors.clone();
            move |error| {
                eprintln!("{error}");
                errors.fetch_add(1, Ordering::Relaxed);
            }
        }));
        Self { adapter, device, queue, errors }
    }

    fn hand_in(&self) -> WgslDevice {
        interop::device(&self.adapter, self.device.clone(), self.queue.clone())
            .expect("its limits suffice")
    }

    fn errors(&self) -> usize {
        self.errors.load(Ordering::Relaxed)
    }

    fn buffer(&self, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        })
    }

    /// Reads the words of a part of a buffer.
    fn read(&self, buffer: &wgpu::Buffer, offset: u64, size: u64) -> Vec<u32> {
        let staging =
            self.buffer(size, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, offset, &staging, 0, size);
        self.queue.submit([encoder.finish()]);
        self.mapped(&staging)
    }

    fn mapped(&self, staging: &wgpu::Buffer) -> Vec<u32> {
        staging.slice(..).map_async(wgpu::MapMode::Read, |result| result.expect("it can be read"));
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the device works");
        let bytes = staging.slice(..).get_mapped_range().expect("it is mapped").to_vec();
        bytes
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
            .collect()
    }
}

fn float<const D: usize>(tensor: WgslTensor) -> Tensor<Wgsl, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

fn primitive<const D: usize>(tensor: Tensor<Wgsl, D>) -> WgslTensor {
    tensor.into_primitive().tensor()
}

fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|word| f32::from_bits(*word)).collect()
}

#[test]
fn models_train_on_a_device_of_the_program() {
    for preferred in [true, false] {
        let Some(host) = Host::new(preferred) else { return };
        let device = host.hand_in();
        assert!(device.to_string().starts_with("host:"), "{device}");
        assert!(device.describe().expect("it is there").contains("Vulkan"));
        assert_eq!(device.to_string().parse::<WgslDevice>().expect("it parses"), device);
        <Autodiff<Wgsl> as Backend>::seed(&device, 1);
        let x = Tensor::<Autodiff<Wgsl>, 2>::random(
            [64, 4],
            burn::tensor::Distribution::Default,
            &device,
        );
        let y = x.clone().sum_dim(1);
        let mut model: Linear<Autodiff<Wgsl>> = LinearConfig::new(4, 1).init(&device);
        let mut adam = AdamConfig::new().init();
        let mut losses = Vec::new();
        for _ in 0..60 {
            let loss = (model.forward(x.clone()) - y.clone()).powi_scalar(2).mean();
            losses.push(loss.clone().into_scalar());
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = adam.step(0.05, model, gradients);
        }
        assert!(losses[59] < losses[0] / 20.0, "{losses:?}");
        assert_eq!(host.errors(), 0);
    }
}

#[test]
fn buffers_of_the_program_are_tensors() {
    let Some(host) = Host::new(true) else { return };
    let device = host.hand_in();
    let numbers: Vec<f32> = (0..6).map(|x| x as f32).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let buffer = host.buffer(interop::buffer_size(24), interop::BUFFER_USAGES);
    host.queue.write_buffer(&buffer, 0, &bytes);
    host.queue.submit([]);

    let x = float::<2>(
        interop::tensor_in_buffer(&device, &buffer, &[2, 3], DType::F32).expect("it fits"),
    );
    // Ops in place must not write the buffer of the program.
    let y = (x.clone() + 1.0).transpose();
    let sums = (x * 10.0).sum_dim(1).into_data();
    assert_eq!(sums.to_vec::<f32>().unwrap(), [30.0, 120.0]);
    assert_eq!(floats(&host.read(&buffer, 0, 24)), numbers);

    // A result, which is strided, as a buffer of the program's commands.
    let out = interop::buffer_of(primitive(y.clone())).expect("it is computed");
    assert_eq!(out.size(), 24);
    let expected = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
    assert_eq!(floats(&host.read(out.buffer(), out.offset(), out.size())), expected);
    // The buffer is the program's own.
    host.queue.write_buffer(out.buffer(), 0, &[0; 24]);
    host.queue.submit([]);
    out.buffer().destroy();
    let unchanged = y.clone().transpose().into_data();
    assert_eq!(unchanged.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);

    // SAFETY: the program only reads the part of the tensor.
    let shared = unsafe { interop::shared_buffer_of(primitive(y.clone())) }.expect("it is there");
    assert_eq!(floats(&host.read(shared.buffer(), shared.offset(), shared.size())), expected);

    // Copies, both ways.
    let target = host.buffer(64, wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST);
    interop::copy_to_buffer(primitive(y), &target, 8).expect("it fits");
    assert_eq!(floats(&host.read(&target, 8, 24)), expected);
    let copy = interop::copy_from_buffer(&device, &target, 12, &[2], DType::F32).expect("it fits");
    host.queue.write_buffer(&target, 0, &[0; 64]);
    host.queue.submit([]);
    assert_eq!(float::<1>(copy).into_data().to_vec::<f32>().unwrap(), [4.0, 2.0]);
    assert_eq!(host.errors(), 0);
}

/// 16-bit copies are kept for the next use, unless the program may write between the uses.
#[test]
fn products_under_autocast_see_what_the_program_wrote() {
    let Some(host) = Host::new(true) else { return };
    let device = host.hand_in();
    let buffer = host.buffer(interop::buffer_size(16), interop::BUFFER_USAGES);
    let x = interop::tensor_in_buffer(&device, &buffer, &[2, 2], DType::F32).expect("it fits");
    let x = Tensor::<Autodiff<Wgsl>, 2>::from_inner(float::<2>(x));
    let weight = Tensor::<Autodiff<Wgsl>, 2>::ones([2, 1], &device).require_grad();
    let _scope = autocast(&device, Precision::F16);
    for value in [1.0f32, 2.0] {
        host.queue.write_buffer(&buffer, 0, &[value; 4].map(f32::to_ne_bytes).concat());
        host.queue.submit([]);
        let product = x.clone().matmul(weight.clone()).cast(DType::F32).into_data();
        assert_eq!(product.to_vec::<f32>().unwrap(), [2.0 * value; 2]);
    }
    assert_eq!(host.errors(), 0);
}

#[test]
fn lent_buffers_go_back_with_their_guard() {
    let Some(host) = Host::new(true) else { return };
    let device = host.hand_in();
    let buffer = host.buffer(256, interop::BUFFER_USAGES);
    host.queue.write_buffer(&buffer, 0, &2.0f32.to_ne_bytes());
    host.queue.submit([]);
    let lent = interop::lend_buffer(&device, &buffer, &[1], DType::F32).expect("it fits");
    let x = float::<1>(lent.tensor());
    // Not computed yet.
    let y = x.clone() * 3.0;
    drop(lent);
    // The program writes the buffer again: what was asked for before must not see it.
    host.queue.write_buffer(&buffer, 0, &100.0f32.to_ne_bytes());
    host.queue.submit([]);
    assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [6.0]);
    let message = std::panic::catch_unwind(AssertUnwindSafe(|| (x * 2.0).into_data()))
        .expect_err("it was taken back");
    let message = message.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains("whose guard was dropped"), "{message}");
    assert_eq!(host.errors(), 0);
    // The device goes on.
    let z = Tensor::<Wgsl, 1>::from_floats([1.0], &device) + 1.0;
    assert_eq!(z.into_data().to_vec::<f32>().unwrap(), [2.0]);
}

#[test]
fn a_buffer_that_the_program_destroys_is_an_error() {
    let Some(host) = Host::new(true) else { return };
    let device = host.hand_in();
    let buffer = host.buffer(256, interop::BUFFER_USAGES);
    let x =
        float::<1>(interop::tensor_in_buffer(&device, &buffer, &[4], DType::F32).expect("it fits"));
    assert_eq!((x.clone() + 1.0).into_data().to_vec::<f32>().unwrap(), [1.0; 4]);
    buffer.destroy();
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| (x + 2.0).into_data()));
    let message = result.expect_err("the buffer is destroyed");
    let message = message.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains("rejected a command"), "{message}");
    // The device goes on.
    let z = Tensor::<Wgsl, 1>::from_floats([1.0], &device) + 1.0;
    assert_eq!(z.into_data().to_vec::<f32>().unwrap(), [2.0]);
    assert_eq!(host.errors(), 0);
}

#[test]
fn images_become_textures() {
    let Some(host) = Host::new(true) else { return };
    let device = host.hand_in();
    let (width, height) = (70, 3);
    for (format, channels) in [
        (wgpu::TextureFormat::Rgba8Unorm, 1),
        (wgpu::TextureFormat::Rgba8UnormSrgb, 3),
        (wgpu::TextureFormat::Bgra8Unorm, 4),
    ] {
        let texture = host.device.create_texture(&wgpu::TextureDescriptor {
            label: None,
            size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format,
            usage: wgpu::TextureUsages::COPY_DST | wgpu::TextureUsages::COPY_SRC,
            view_formats: &[],
        });
        let count = width as usize * height as usize * channels;
        let values: Vec<f32> = (0..count).map(|i| (i % 251) as f32 / 255.0).collect();
        let shape = [height as usize, width as usize, channels];
        let image = Tensor::<Wgsl, 3>::from_data(TensorData::new(values, shape), &device);
        interop::copy_to_texture(&image, &texture).expect("it fits");

        let staging =
            host.buffer(512 * 3, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let mut encoder = host.device.create_command_encoder(&Default::default());
        encoder.copy_texture_to_buffer(
            texture.as_image_copy(),
            wgpu::TexelCopyBufferInfo {
                buffer: &staging,
                layout: wgpu::TexelCopyBufferLayout {
                    offset: 0,
                    bytes_per_row: Some(512),
                    rows_per_image: None,
                },
            },
            texture.size(),
        );
        host.queue.submit([encoder.finish()]);
        let words = host.mapped(&staging);
        for (y, x) in (0..height as usize).flat_map(|y| (0..width as usize).map(move |x| (y, x))) {
            let channel = |c: usize| (((y * width as usize + x) * channels + c) % 251) as u8;
            let expected = match channels {
                1 => [channel(0), channel(0), channel(0), 255],
                3 => [channel(0), channel(1), channel(2), 255],
                _ => [channel(2), channel(1), channel(0), channel(3)],
            };
            assert_eq!(words[y * 128 + x].to_le_bytes(), expected, "{format:?} {y} {x}");
        }
        assert_eq!(host.errors(), 0);
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let Some(host) = Host::new(true) else { return };
    let device = host.hand_in();
    let message =
        |result: Result<WgslTensor, InteropError>| result.expect_err("it does not fit").to_string();
    let buffer = host.buffer(100, interop::BUFFER_USAGES);
    let small = message(interop::tensor_in_buffer(&device, &buffer, &[25], DType::F32));
    assert!(small.contains("has 100 bytes") && small.contains("needs 256"), "{small}");
    let plain = host.buffer(256, wgpu::BufferUsages::STORAGE);
    let usage = message(interop::tensor_in_buffer(&device, &plain, &[25], DType::F32));
    assert!(usage.contains("without the usage") && usage.contains("COPY_SRC"), "{usage}");
    let dtype = message(interop::copy_from_buffer(&device, &buffer, 0, &[2], DType::I64));
    assert!(dtype.contains("I64 cannot be shared"), "{dtype}");
    let offset = message(interop::copy_from_buffer(&device, &buffer, 2, &[2], DType::F32));
    assert!(offset.contains("multiples of 4"), "{offset}");
    let part = message(interop::copy_from_buffer(&device, &buffer, 96, &[2], DType::F32));
    assert!(part.contains("has 100 bytes") && part.contains("needs 104"), "{part}");
    let cpu = message(interop::tensor_in_buffer(&WgslDevice::Cpu, &buffer, &[1], DType::F32));
    assert!(cpu.contains("the CPU"), "{cpu}");
    let cpu = interop::buffer_of(primitive(Tensor::<Wgsl, 1>::ones([1], &WgslDevice::Cpu)));
    assert!(matches!(cpu, Err(InteropError::Cpu)));
    let unknown = WgslDevice::Host(1000);
    assert!(unknown.resolve().expect_err("it is not there").to_string().contains("host:1000"));
    // A tensor of another device.
    if let Some(other) = common::gpus().first() {
        let [mine, other] = [&device, other].map(|device| Tensor::<Wgsl, 1>::ones([1], device));
        assert!(std::panic::catch_unwind(AssertUnwindSafe(|| (mine + other).into_data())).is_err());
    }
    assert_eq!(host.errors(), 0);
}

#[test]
fn low_limits_are_an_error() {
    let Some(host) = Host::new(false) else { return };
    let mut descriptor = wgpu::DeviceDescriptor::default();
    descriptor.required_limits.max_storage_buffers_per_shader_stage = 4;
    let opened = pollster::block_on(host.adapter.request_device(&descriptor));
    let (device, queue) = opened.expect("the device opens");
    let error =
        interop::device(&host.adapter, device, queue).expect_err("4 are too few").to_string();
    assert!(error.contains("has 4, needs 8") && error.contains("interop::requirements"), "{error}");
    let mut descriptor = wgpu::DeviceDescriptor::default();
    descriptor.required_limits.max_storage_buffer_binding_size = 1 << 20;
    let opened = pollster::block_on(host.adapter.request_device(&descriptor));
    let (device, queue) = opened.expect("the device opens");
    let error = interop::device(&host.adapter, device, queue).expect_err("1 MiB is too little");
    assert!(error.to_string().contains("storage binding: has 1048576"), "{error}");
}

#[test]
fn a_lost_device_of_the_program_is_an_error() {
    let Some(host) = Host::new(true) else { return };
    let device = host.hand_in();
    let x = Tensor::<Wgsl, 1>::ones([4], &device);
    host.device.destroy();
    interop::report_lost(&device, "the renderer closed it").expect("the device is known");
    let result = x.try_into_data();
    let error = result.expect_err("it is lost").to_string();
    assert!(error.contains("the renderer closed it"), "{error}");
    let error = interop::flush(&device).expect_err("it is lost").to_string();
    assert!(error.contains("hand in a new one"), "{error}");
    burn_wgsl::close(&device).expect("the device is known");
    let error = interop::flush(&device).expect_err("it is closed").to_string();
    assert!(error.contains("it was closed"), "{error}");
}

#[test]
fn objects_of_another_device_are_errors() {
    let Some(host) = Host::new(true) else { return };
    let other = Host::open(host.adapter.clone(), true);
    let device = host.hand_in();
    let kept = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0], &device) * 2.0;
    let foreign = other.buffer(256, interop::BUFFER_USAGES);
    let x = primitive(Tensor::<Wgsl, 1>::ones([4], &device));
    for _ in 0..2 {
        let texture = other.device.create_texture(&wgpu::TextureDescriptor {
            label: None,
            size: wgpu::Extent3d { width: 2, height: 2, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: wgpu::TextureFormat::Rgba8Unorm,
            usage: wgpu::TextureUsages::COPY_DST,
            view_formats: &[],
        });
        let image = Tensor::<Wgsl, 3>::ones([2, 2, 3], &device);
        let errors = [
            interop::tensor_in_buffer(&device, &foreign, &[4], DType::F32).err(),
            interop::lend_buffer(&device, &foreign, &[4], DType::F32).err(),
            interop::copy_from_buffer(&device, &foreign, 0, &[4], DType::F32).err(),
            interop::copy_to_buffer(x.clone(), &foreign, 0).err(),
            interop::copy_to_texture(&image, &texture).err(),
        ];
        for error in errors {
            let message = error.expect("the object is of another device").to_string();
            assert!(message.contains("must be of the same wgpu device"), "{message}");
        }
    }
    let queue = interop::device(&host.adapter, host.device.clone(), other.queue.clone());
    let message = queue.expect_err("the queue is of another device").to_string();
    assert!(message.contains("is that of another device"), "{message}");
    // wgpu reports that to the device of the queue.
    assert!(other.errors() <= 1);
    assert_eq!(host.errors(), 0);
    // Nothing else is lost.
    assert_eq!(kept.into_data().to_vec::<f32>().unwrap(), [2.0, 4.0]);
    let z = Tensor::<Wgsl, 1>::from_floats([1.0], &device) + 1.0;
    assert_eq!(z.into_data().to_vec::<f32>().unwrap(), [2.0]);
}

#[test]
fn a_destroyed_buffer_is_an_error_at_its_first_use() {
    let Some(host) = Host::new(true) else { return };
    let device = host.hand_in();
    let kept = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0], &device) * 2.0;
    let buffer = host.buffer(256, interop::BUFFER_USAGES);
    let x =
        float::<1>(interop::tensor_in_buffer(&device, &buffer, &[4], DType::F32).expect("it fits"));
    buffer.destroy();
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| (x + 2.0).into_data()));
    let message = result.expect_err("the buffer is destroyed");
    let message = message.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains("neither destroyed"), "{message}");
    assert_eq!(host.errors(), 0);
    assert_eq!(kept.into_data().to_vec::<f32>().unwrap(), [2.0, 4.0]);
}

#[test]
fn a_mapped_buffer_is_an_error() {
    let Some(host) = Host::new(true) else { return };
    let device = host.hand_in();
    let pending = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0], &device) * 2.0;
    let mapped = host.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 256,
        usage: interop::BUFFER_USAGES,
        mapped_at_creation: true,
    });
    let error = interop::tensor_in_buffer(&device, &mapped, &[4], DType::F32);
    let error = error.expect_err("it is mapped").to_string();
    assert!(error.contains("mapped"), "{error}");
    mapped.unmap();
    interop::tensor_in_buffer(&device, &mapped, &[4], DType::F32).expect("it is not mapped now");
    assert_eq!(host.errors(), 0);
    assert_eq!(pending.into_data().to_vec::<f32>().unwrap(), [2.0, 4.0]);
}

#[test]
fn errors_of_a_destroyed_device_do_not_reach_its_handler() {
    let Some(host) = Host::new(true) else { return };
    let device = host.hand_in();
    let x = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0], &device);
    host.device.destroy();
    let error = (x * 2.0).try_into_data().expect_err("the device is destroyed").to_string();
    assert!(error.contains("interop::report_lost"), "{error}");
    assert_eq!(host.errors(), 0);
}
