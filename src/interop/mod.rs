//! A wgpu device, buffers and textures that the program has already: of a game engine or a renderer.
//!
//! [`device()`] takes a device of the program. Tensors on it, ops and training are those of any other device:
//!
//! ```
//! use burn::tensor::Tensor;
//! use burn_wgsl::interop::{self, wgpu};
//! use burn_wgsl::Wgsl;
//!
//! # pollster::block_on(async {
//! let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
//! let Ok(adapter) = instance.request_adapter(&wgpu::RequestAdapterOptions::default()).await else { return };
//! let (required_features, required_limits) = interop::requirements(&adapter);
//! let descriptor =
//!     wgpu::DeviceDescriptor { required_features, required_limits, ..wgpu::DeviceDescriptor::default() };
//! let (device, queue) = adapter.request_device(&descriptor).await.unwrap();
//!
//! let tensors = interop::device(&adapter, device.clone(), queue.clone()).unwrap();
//! let x = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0], &tensors);
//! assert_eq!((x * 2.0).into_data().to_vec::<f32>().unwrap(), [2.0, 4.0]);
//! # });
//! ```
//!
//! | from | to | function |
//! |---|---|---|
//! | a buffer | a tensor in it | [`tensor_in_buffer`], or [`lend_buffer`] with a guard |
//! | a buffer | a tensor | [`copy_from_buffer`] |
//! | a tensor | a buffer with a copy | [`buffer_of`] |
//! | a tensor | the buffer in which it is | [`shared_buffer_of`], which is `unsafe` |
//! | a tensor | a buffer, a texture | [`copy_to_buffer`], [`copy_to_texture`] |
//!
//! **Order.** Everything runs on the program's queue, in the order in which it is submitted. Commands that write a
//! buffer must be submitted before the buffer is passed here. The copies submit what they need; [`flush`] submits all
//! that was asked for.
//!
//! **Threads.** Ops and guards must not be used in wgpu's callbacks, such as that of `map_async`: this crate may hold
//! its locks while wgpu calls them. A guard is dropped when no other thread uses its tensor.
//!
//! **Errors.** The callbacks of the program's device stay the program's. Errors of commands that this crate submits are
//! returned by its ops, and do not reach them; so are errors of buffers and textures of another device. wgpu
//! cannot tell objects of several instances apart: a program with more than one must not mix them. When the device is
//! lost, [`report_lost`] tells this crate: without it, ops on the device fail with other errors.

mod buffers;
mod error;
mod texture;

/// The element types of tensors in buffers.
pub use burn_backend::DType;
/// The version of wgpu that this crate uses.
pub use wgpu;

pub use buffers::{
    BUFFER_USAGES, LentTensor, TensorBuffer, buffer_of, buffer_size, copy_from_buffer,
    copy_to_buffer, lend_buffer, shared_buffer_of, tensor_in_buffer,
};
pub use error::InteropError;
pub use texture::copy_to_texture;

use std::sync::Arc;

use crate::device::{self, DeviceError, ResolvedDevice, WgslDevice};
use crate::runtime::{Runtime, RuntimeError};

/// Returns the features and the limits with which a program should open its device, so that kernels are fastest. With
/// others the device works too, if its limits are at least those that WebGPU guarantees.
pub fn requirements(adapter: &wgpu::Adapter) -> (wgpu::Features, wgpu::Limits) {
    device::host_requirements(adapter)
}

/// Takes a device that the program opened on `adapter`, and its queue. Tensors can be created on the result, which is a
/// [`WgslDevice::Host`].
///
/// The program keeps the device: its callbacks are not replaced, and [`close`](crate::close) does not destroy it.
/// Each call takes the device as a new one.
///
/// # Errors
///
/// Returns an error if the device is of another adapter, its limits are too low, or the queue is that of another
/// device.
pub fn device(
    adapter: &wgpu::Adapter,
    device: wgpu::Device,
    queue: wgpu::Queue,
) -> Result<WgslDevice, DeviceError> {
    let opened = device::take_host(adapter, device, queue)?;
    Ok(WgslDevice::Host(Runtime::add_host(opened)))
}

/// Tells this crate that the program's device was lost. Ops on its tensors then return that error.
///
/// ```no_run
/// use burn_wgsl::{WgslDevice, interop};
///
/// # fn on_lost(device: WgslDevice, wgpu_device: &interop::wgpu::Device) {
/// wgpu_device.set_device_lost_callback(move |_, reason| {
///     let _ = interop::report_lost(&device, &reason);
/// });
/// # }
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device. Does nothing for other devices.
pub fn report_lost(device: &WgslDevice, reason: &str) -> Result<(), DeviceError> {
    if let (WgslDevice::Host(_), ResolvedDevice::Adapter(index)) = (device, device.resolve()?)
        && let Some(runtime) = Runtime::opened(index)
    {
        runtime.report_lost(reason);
    }
    Ok(())
}

/// Submits everything that was asked for on a device, without waiting for it: what the program submits from here on
/// runs after it. Does nothing for the CPU.
///
/// ```no_run
/// use burn_wgsl::{WgslDevice, interop};
///
/// # fn draw(device: &WgslDevice) -> Result<(), interop::InteropError> {
/// interop::flush(device)?; // what the program submits now sees the results
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device, or it fails.
pub fn flush(device: &WgslDevice) -> Result<(), InteropError> {
    match device.resolve()? {
        ResolvedDevice::Cpu => Ok(()),
        ResolvedDevice::Adapter(index) => Ok(Runtime::of(index)?.flush()?),
    }
}

/// Returns the open GPU of a device.
fn runtime_of(device: &WgslDevice) -> Result<Arc<Runtime>, InteropError> {
    match device.resolve()? {
        ResolvedDevice::Cpu => Err(InteropError::Cpu),
        ResolvedDevice::Adapter(index) => Ok(Runtime::of(index)?),
    }
}

impl From<RuntimeError> for InteropError {
    fn from(error: RuntimeError) -> Self {
        Self::Tensor(error.into())
    }
}
