//! The device. Each release's crate exports it under the name that Burn expects there.

use std::fmt;

use burn_backend::{BoolStore, DType, Device, DeviceId, DeviceOps, DeviceSettings};
use burn_backend_021::get_device_settings;
use burn_wgsl::{Wgsl, WgslDevice};
use bytemuck::TransparentWrapper;

use crate::contract::Convert;
use crate::release::other_type;

/// A device of burn-wgsl. The default is selected automatically, or by `BURN_WGSL_DEVICE`.
#[derive(Clone, Copy, Default, TransparentWrapper)]
#[repr(transparent)]
pub struct PortDevice(pub WgslDevice);

/// Names burn-wgsl, which is in the place of another backend, and the device's selector.
impl fmt::Debug for PortDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "burn-wgsl {}", self.0)
    }
}

/// Selectors of one device are equal.
impl PartialEq for PortDevice {
    fn eq(&self, other: &Self) -> bool {
        self.to_id() == other.to_id()
    }
}

impl Eq for PortDevice {}

impl Device for PortDevice {
    fn from_id(id: DeviceId) -> Self {
        let id = burn_backend_021::DeviceId::new(other_type(id.type_id), id.index_id);
        Self(burn_backend_021::Device::from_id(id))
    }

    fn to_id(&self) -> DeviceId {
        let id = burn_backend_021::Device::to_id(&self.0);
        DeviceId::new(other_type(id.type_id), id.index_id)
    }
}

impl DeviceOps for PortDevice {
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
