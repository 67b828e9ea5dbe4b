//! The device, under the name that Burn expects.

use burn_backend::{BoolStore, DType, Device, DeviceId, DeviceOps, DeviceSettings};
use burn_backend_021::get_device_settings;
use burn_wgsl::{Wgsl, WgslDevice};
use bytemuck::TransparentWrapper;

use crate::contract::Convert;

/// A device of burn-wgsl. The default is selected automatically, or by `BURN_WGSL_DEVICE`.
///
/// | Burn | here |
/// |---|---|
/// | `Device::default()`, unless a CubeCL backend is enabled | the default |
/// | `Device::libtorch_cuda(n)` | GPU number `n` of any vendor |
/// | `Device::libtorch_mps()`, `Device::libtorch_vulkan()` | the default |
/// | `Device::libtorch()` | the CPU |
#[derive(Debug, Clone, Copy, Default, TransparentWrapper)]
#[repr(transparent)]
pub struct LibTorchDevice(pub WgslDevice);

/// The names of LibTorch's devices.
#[allow(non_snake_case, non_upper_case_globals, reason = "they are variants of LibTorch's device")]
impl LibTorchDevice {
    /// The CPU.
    pub const Cpu: Self = Self(WgslDevice::Cpu);
    /// The default device.
    pub const Mps: Self = Self(WgslDevice::Auto);
    /// The default device.
    pub const Vulkan: Self = Self(WgslDevice::Auto);

    /// The GPU with this number, of any vendor.
    pub const fn Cuda(index: usize) -> Self {
        Self(WgslDevice::Gpu(index))
    }
}

/// Selectors of one device are equal.
impl PartialEq for LibTorchDevice {
    fn eq(&self, other: &Self) -> bool {
        self.to_id() == other.to_id()
    }
}

impl Eq for LibTorchDevice {}

/// Burn lists the devices of type 0, which are GPUs for LibTorch; for burn-wgsl, they are of type
/// 1.
pub(crate) const fn other_type(type_id: u16) -> u16 {
    match type_id {
        0 => 1,
        1 => 0,
        type_id => type_id,
    }
}

impl Device for LibTorchDevice {
    fn from_id(id: DeviceId) -> Self {
        let id = burn_backend_021::DeviceId::new(other_type(id.type_id), id.index_id);
        Self(burn_backend_021::Device::from_id(id))
    }

    fn to_id(&self) -> DeviceId {
        let id = burn_backend_021::Device::to_id(&self.0);
        DeviceId::new(other_type(id.type_id), id.index_id)
    }
}

impl DeviceOps for LibTorchDevice {
    fn defaults(&self) -> DeviceSettings {
        let settings = get_device_settings::<Wgsl>(&self.0);
        DeviceSettings::new(
            settings.float_dtype.converted(),
            settings.int_dtype.converted(),
            DType::Bool(BoolStore::Native),
            Default::default(),
        )
    }
}
