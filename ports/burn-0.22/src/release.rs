//! What Burn 0.22 has otherwise than later releases: names, and methods that the others do not have, or with other
//! arguments.

use burn_backend as new;
use burn_backend_021 as old;
use burn_wgsl::WgslDevice;

use crate::contract::Convert;
use crate::device::PortDevice;
use crate::tensor::Tensor;

/// The names of LibTorch's devices.
///
/// | Burn | here |
/// |---|---|
/// | `Device::default()`, unless a CubeCL backend is enabled | the default |
/// | `Device::libtorch_cuda(n)` | GPU number `n` of any vendor |
/// | `Device::libtorch()`, `Device::libtorch_mps()`, `Device::libtorch_vulkan()` | the default |
/// | `Device::new(PortDevice(WgslDevice::Cpu))` | the CPU |
#[allow(non_snake_case, non_upper_case_globals, reason = "they are variants of LibTorch's device")]
impl PortDevice {
    /// The default device. It is LibTorch's default: data loaders of programs that name it use the default device.
    pub const Cpu: Self = Self(WgslDevice::Auto);
    /// The default device.
    pub const Mps: Self = Self(WgslDevice::Auto);
    /// The default device.
    pub const Vulkan: Self = Self(WgslDevice::Auto);

    /// The GPU with this number, of any vendor.
    pub const fn Cuda(index: usize) -> Self {
        Self(WgslDevice::Gpu(index))
    }
}

/// Burn lists the devices of type 0, which are GPUs for LibTorch; for burn-wgsl, they are of type
/// 1.
pub(crate) const fn other_type(type_id: u16) -> u16 {
    match type_id {
        0 => 1,
        1 => 0,
        type_id => type_id,
    }
}

impl Convert for new::ops::AttentionModuleOptions {
    type Other = old::ops::AttentionModuleOptions;

    fn converted(self) -> Self::Other {
        let Self { scale, softcap, is_causal } = self;
        old::ops::AttentionModuleOptions { scale, softcap, is_causal }
    }
}

impl Convert for old::ops::AttentionModuleOptions {
    type Other = new::ops::AttentionModuleOptions;

    fn converted(self) -> Self::Other {
        let Self { scale, softcap, is_causal } = self;
        new::ops::AttentionModuleOptions { scale, softcap, is_causal }
    }
}

/// The size is an argument of its own.
impl Convert for new::ops::InterpolateOptions {
    type Other = old::ops::InterpolateOptions;

    fn converted(self) -> Self::Other {
        old::ops::InterpolateOptions::new(self.mode.converted())
            .with_align_corners(self.align_corners)
    }
}

impl Convert for old::ops::InterpolateOptions {
    type Other = new::ops::InterpolateOptions;

    fn converted(self) -> Self::Other {
        new::ops::InterpolateOptions::new(self.mode.converted())
            .with_align_corners(self.align_corners)
    }
}

/// Kernels have all options of this release.
pub(crate) fn check_interpolation(_: &new::ops::InterpolateOptions, _: &Tensor, _: [usize; 2]) {}

/// Implements the traits of a backend that other releases do not have.
macro_rules! backend_of_release {
    () => {};
}

macro_rules! float_methods_of_release {
    () => {};
}

macro_rules! boolean_methods_of_release {
    () => {
        forward! {
            bool_scatter_or(dim: usize, tensor: B, indices: I, value: B) -> B;
            bool_select_or(tensor: B, dim: usize, indices: I, value: B) -> B;
        }
    };
}

macro_rules! quantized_methods_of_release {
    () => {
        forward! {
            q_from_data(data: TensorData, device: &Device) -> Q;
        }
    };
}

macro_rules! module_methods_of_release {
    () => {
        forward! {
            attention(
                query: F, key: F, value: F, mask: Option<B>, attn_bias: Option<F>,
                options: AttentionModuleOptions
            ) -> F;
        }

        fn avg_pool1d(
            x: F,
            kernel_size: usize,
            stride: usize,
            padding: usize,
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> F {
            let (x, windows) = line(x, [kernel_size, stride, padding, 1], ceil_mode);
            Wgsl::avg_pool1d(x, kernel_size, stride, padding, count_include_pad, windows.ceil_mode)
                .converted()
        }

        fn avg_pool1d_backward(
            x: F,
            grad: F,
            kernel_size: usize,
            stride: usize,
            padding: usize,
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> F {
            let (x, windows) = line(x, [kernel_size, stride, padding, 1], ceil_mode);
            let (grad, ceil_mode) = (grad.converted(), windows.ceil_mode);
            Wgsl::avg_pool1d_backward(
                x,
                grad,
                kernel_size,
                stride,
                padding,
                count_include_pad,
                ceil_mode,
            )
            .converted()
        }

        fn avg_pool2d(
            x: F,
            kernel_size: [usize; 2],
            stride: [usize; 2],
            padding: [usize; 2],
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> F {
            let (x, windows) = plane(x, [kernel_size, stride, padding, [1; 2]], ceil_mode);
            let ceil_mode = windows.ceil_mode;
            let pooled =
                Wgsl::avg_pool2d(x, kernel_size, stride, padding, count_include_pad, ceil_mode);
            windows.cut(pooled).converted()
        }

        fn avg_pool2d_backward(
            x: F,
            grad: F,
            kernel_size: [usize; 2],
            stride: [usize; 2],
            padding: [usize; 2],
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> F {
            let (x, windows) = plane(x, [kernel_size, stride, padding, [1; 2]], ceil_mode);
            let (grad, ceil_mode) = (windows.grown(grad.converted()), windows.ceil_mode);
            Wgsl::avg_pool2d_backward(
                x,
                grad,
                kernel_size,
                stride,
                padding,
                count_include_pad,
                ceil_mode,
            )
            .converted()
        }
    };
}
