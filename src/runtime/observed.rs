//! Devices whose events can be observed: GPUs, and the host, which is the CPU device.

use std::sync::Arc;

use super::events::{Observation, Observer, Observers, host_observers};
use super::{MemoryUsage, Runtime, RuntimeError};
use crate::device::{DeviceError, ResolvedDevice, WgslDevice};

/// A device whose events can be observed.
#[derive(Clone)]
pub(crate) enum ObservedDevice {
    /// A GPU.
    Gpu(Arc<Runtime>),
    /// The CPU device.
    Host,
}

impl ObservedDevice {
    /// Returns a device, opened if it was not.
    pub fn of(device: &WgslDevice) -> Result<Self, DeviceError> {
        match device.resolve()? {
            ResolvedDevice::Cpu => Ok(Self::Host),
            ResolvedDevice::Adapter(index) => Runtime::of(index).map(Self::Gpu),
        }
    }

    pub fn name(&self) -> String {
        match self {
            Self::Gpu(runtime) => runtime.name(),
            Self::Host => "CPU".to_owned(),
        }
    }

    /// Computes pending results, which only a GPU has.
    pub fn record_deferred(&self) -> Result<(), RuntimeError> {
        match self {
            Self::Gpu(runtime) => runtime.record_deferred(),
            Self::Host => Ok(()),
        }
    }

    /// Returns what observes the device.
    pub fn observers(&self) -> &Observers {
        match self {
            Self::Gpu(runtime) => &runtime.gpu.observers,
            Self::Host => host_observers(),
        }
    }

    /// Passes the device's events to an observer, until the result is dropped. Also returns the bytes in use before the
    /// first event that is passed, which are not known of the host.
    pub fn observe_memory(&self, observer: Arc<dyn Observer>) -> (Observation, u64) {
        match self {
            Self::Gpu(runtime) => runtime.observe_memory(observer),
            Self::Host => (Observation::begin(host_observers(), observer), 0),
        }
    }

    /// Returns how much memory is in use; `None` for the host, which does not count it.
    pub fn memory(&self) -> Option<MemoryUsage> {
        match self {
            Self::Gpu(runtime) => Some(runtime.memory()),
            Self::Host => None,
        }
    }
}
