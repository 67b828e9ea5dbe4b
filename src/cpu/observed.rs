//! Tensors whose memory is observed: profiles and memory recordings of the CPU device.

use std::mem::MaybeUninit;
use std::sync::Arc;

use burn_std::{AllocationController, AllocationProperty, Bytes};

use super::FlexTensor;
use crate::runtime::{Event, Location, host_observers};

/// Memory whose release is passed to the observers of the CPU device.
struct ObservedMemory {
    bytes: Bytes,
    location: Location,
    size: u64,
}

impl ObservedMemory {
    fn new(bytes: Bytes) -> Self {
        let location = Location { buffer: bytes.as_ptr() as u64, offset: 0 };
        let size = bytes.len() as u64;
        host_observers().notify(|| Event::Allocate { location, bytes: size, requested: size });
        Self { bytes, location, size }
    }
}

impl Drop for ObservedMemory {
    fn drop(&mut self) {
        let Self { location, size, .. } = *self;
        host_observers().notify(|| Event::Release { location, bytes: size });
    }
}

impl AllocationController for ObservedMemory {
    fn alloc_align(&self) -> usize {
        self.bytes.align()
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    unsafe fn memory_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        let bytes: &mut [u8] = &mut self.bytes;
        // SAFETY: the two types have the same layout, and the caller writes only initialised bytes.
        unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
    }

    fn memory(&self) -> &[MaybeUninit<u8>] {
        let bytes: &[u8] = &self.bytes;
        // SAFETY: the two types have the same layout, and initialised bytes may be read as such.
        unsafe { &*(std::ptr::from_ref(bytes) as *const [MaybeUninit<u8>]) }
    }
}

/// Passes the memory of a new tensor to the observers of the CPU device, if there are any. What other tensors share,
/// or what is observed already, stays as it is.
pub(crate) fn observed(tensor: FlexTensor) -> FlexTensor {
    if !host_observers().are_present() || !tensor.is_unique() {
        return tensor;
    }
    let (layout, dtype, data) = (tensor.layout().clone(), tensor.dtype(), tensor.data_arc());
    drop(tensor);
    match Arc::try_unwrap(data) {
        Ok(bytes) if bytes.property() == AllocationProperty::Native && !bytes.is_empty() => {
            let len = bytes.len();
            // SAFETY: all bytes are initialised.
            let bytes = unsafe { Bytes::from_controller(Box::new(ObservedMemory::new(bytes)), len) };
            FlexTensor::new(bytes, layout, dtype)
        }
        Ok(bytes) => FlexTensor::new(bytes, layout, dtype),
        Err(shared) => FlexTensor::from_arc(shared, layout, dtype),
    }
}
