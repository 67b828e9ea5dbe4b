//! Tensors in buffers of the program, and the buffers of tensors.

use std::sync::Arc;

use burn_backend::DType;

use super::{InteropError, runtime_of};
use crate::backend::WgslTensor;
use crate::backend::custom::on_gpu;
use crate::device::WgslDevice;
use crate::kernels::views;
use crate::runtime::{Allocation, Runtime};
use crate::tensor::{self, Tensor};

/// The usages that a buffer needs so that a tensor can be in it.
pub const BUFFER_USAGES: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

/// The unit of the sizes of buffers: kernels read whole vectors, also past the last element.
const UNIT: u64 = 256;

/// Returns the size of a buffer in which a tensor with `bytes` bytes of elements can be.
pub fn buffer_size(bytes: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(UNIT).unwrap_or(u64::MAX)
}

/// Returns a tensor whose elements are in a buffer of the program, in row-major order. Ops read the buffer and never
/// write it. The tensor keeps it alive.
///
/// f16 and bf16 have two bytes, the other types four. The program may write the buffer while no op is pending that
/// reads it: see [`flush`](super::flush).
///
/// # Errors
///
/// Returns an error if the buffer is smaller than [`buffer_size`], lacks one of [`BUFFER_USAGES`], or the element
/// type is not f32, f16, bf16, i32 or u32, or the buffer is of another wgpu device.
pub fn tensor_in_buffer(
    device: &WgslDevice,
    buffer: &wgpu::Buffer,
    shape: &[usize],
    dtype: DType,
) -> Result<WgslTensor, InteropError> {
    let tensor = foreign(&runtime_of(device)?, buffer, shape, dtype)?;
    Ok(WgslTensor::on_gpu(device.canonical(), tensor))
}

/// A tensor in a buffer that the program has lent: see [`lend_buffer`].
#[derive(Debug)]
#[must_use = "the tensor can be used until the guard is dropped"]
pub struct LentTensor {
    tensor: WgslTensor,
    runtime: Arc<Runtime>,
    memory: Arc<Allocation>,
}

/// Returns a tensor in a buffer like [`tensor_in_buffer`], until the guard is dropped. Then everything that reads the
/// buffer was submitted, so that the program may write it. Using the tensor afterwards is an error, and a panic in
/// Burn's ops.
///
/// # Errors
///
/// As [`tensor_in_buffer`].
pub fn lend_buffer(
    device: &WgslDevice,
    buffer: &wgpu::Buffer,
    shape: &[usize],
    dtype: DType,
) -> Result<LentTensor, InteropError> {
    let runtime = runtime_of(device)?;
    let tensor = foreign(&runtime, buffer, shape, dtype)?;
    let memory = tensor.buffer()?.clone();
    Ok(LentTensor { tensor: WgslTensor::on_gpu(device.canonical(), tensor), runtime, memory })
}

impl LentTensor {
    /// Returns the tensor.
    pub fn tensor(&self) -> WgslTensor {
        self.tensor.clone()
    }
}

impl Drop for LentTensor {
    fn drop(&mut self) {
        self.runtime.take_back_foreign(&self.memory);
    }
}

/// Returns a tensor with the elements in a part of a buffer. The copy is submitted: the program may write the buffer
/// again.
///
/// # Errors
///
/// Returns an error if the part is outside of the buffer, its offset or size is not a multiple of four bytes, the
/// buffer lacks the usage `COPY_SRC` or is of another wgpu device, the element type is not one of those of
/// [`tensor_in_buffer`], or the memory is not available.
pub fn copy_from_buffer(
    device: &WgslDevice,
    buffer: &wgpu::Buffer,
    offset: u64,
    shape: &[usize],
    dtype: DType,
) -> Result<WgslTensor, InteropError> {
    let runtime = runtime_of(device)?;
    check_usage(buffer.usage(), wgpu::BufferUsages::COPY_SRC)?;
    let tensor = Tensor::empty(&runtime, shape, stored(dtype)?)?;
    let size = bytes_of(&tensor);
    check_part(buffer, offset, size, shape)?;
    if size > 0 {
        runtime.submit_with_foreign(tensor.buffer()?, true, |encoder, own, at| {
            encoder.copy_buffer_to_buffer(buffer, offset, own, at, size);
        })?;
    }
    Ok(WgslTensor::on_gpu(device.canonical(), tensor))
}

/// Copies the elements of a tensor to a part of a buffer, in row-major order, and submits the copy.
///
/// # Errors
///
/// As [`copy_from_buffer`], for the usage `COPY_DST`.
pub fn copy_to_buffer(
    tensor: WgslTensor,
    buffer: &wgpu::Buffer,
    offset: u64,
) -> Result<(), InteropError> {
    let tensor = packed(tensor)?;
    check_usage(buffer.usage(), wgpu::BufferUsages::COPY_DST)?;
    let size = bytes_of(&tensor);
    check_part(buffer, offset, size, tensor.shape())?;
    copy_elements(&tensor, buffer, offset, size)
}

/// Submits a copy of the first `size` bytes of a packed tensor.
fn copy_elements(
    tensor: &Tensor,
    buffer: &wgpu::Buffer,
    offset: u64,
    size: u64,
) -> Result<(), InteropError> {
    if size == 0 {
        return Ok(tensor.runtime().flush()?);
    }
    Ok(tensor.runtime().submit_with_foreign(tensor.buffer()?, false, |encoder, own, at| {
        encoder.copy_buffer_to_buffer(own, at, buffer, offset, size);
    })?)
}

/// A buffer with the elements of a tensor: see [`buffer_of`] and [`shared_buffer_of`].
#[derive(Debug)]
pub struct TensorBuffer {
    buffer: wgpu::Buffer,
    offset: u64,
    size: u64,
    /// Keeps memory alive that other tensors share.
    _tensor: Option<Tensor>,
}

impl TensorBuffer {
    /// Returns the buffer. It has [`BUFFER_USAGES`].
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Returns the offset of the first element in bytes, a multiple of 256.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the size of the elements in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the elements as a binding.
    pub fn as_binding(&self) -> wgpu::BindingResource<'_> {
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: &self.buffer,
            offset: self.offset,
            // Without a size, wgpu would bind the rest of the buffer.
            size: wgpu::BufferSize::new(self.size.max(1).next_multiple_of(4)),
        })
    }
}

/// Copies the elements of a tensor, in row-major order, to a new buffer, and submits the copy. The buffer is the
/// program's own: it may also write and destroy it.
///
/// # Errors
///
/// Returns an error if the element type is not one of those of [`tensor_in_buffer`], the memory is not available, or
/// the device fails.
pub fn buffer_of(tensor: WgslTensor) -> Result<TensorBuffer, InteropError> {
    let tensor = packed(tensor)?;
    let size = bytes_of(&tensor);
    let buffer = tensor.runtime().create_foreign(buffer_size(size), BUFFER_USAGES)?;
    copy_elements(&tensor, &buffer, 0, size.next_multiple_of(4))?;
    Ok(TensorBuffer { buffer, offset: 0, size, _tensor: None })
}

/// Returns the buffer in which the elements of a tensor are, in row-major order, after everything that computes them
/// was submitted. Nothing is copied, unless the tensor is a view. The memory is kept until the result is dropped.
///
/// # Safety
///
/// Other tensors, and tensors that are created later, are in the same buffer. Until the device is closed, the program
/// must only read the part from [`TensorBuffer::offset`] on, and only while it has the result. It must not write or
/// map the buffer, and must not destroy it.
///
/// # Errors
///
/// As [`buffer_of`].
pub unsafe fn shared_buffer_of(tensor: WgslTensor) -> Result<TensorBuffer, InteropError> {
    let tensor = packed(tensor)?;
    let (buffer, offset) = tensor.runtime().submitted_buffer(tensor.buffer()?)?;
    Ok(TensorBuffer { buffer, offset, size: bytes_of(&tensor), _tensor: Some(tensor) })
}

/// Returns a tensor as kernels take it, in row-major order.
pub(super) fn packed(tensor: WgslTensor) -> Result<Tensor, InteropError> {
    if super::ResolvedDevice::Cpu == tensor.device().resolve()? {
        return Err(InteropError::Cpu);
    }
    let tensor = on_gpu("interop", tensor).map_err(|dtype| InteropError::Type { dtype })?;
    if !SHARED.contains(&tensor.dtype()) {
        return Err(InteropError::Type { dtype: format!("{:?}", tensor.dtype()) });
    }
    Ok(views::packed(tensor)?)
}

/// The types whose elements are stored as the program expects.
const SHARED: [tensor::DType; 5] = [
    tensor::DType::F32,
    tensor::DType::F16,
    tensor::DType::BF16,
    tensor::DType::I32,
    tensor::DType::U32,
];

fn stored(dtype: DType) -> Result<tensor::DType, InteropError> {
    let found = SHARED.iter().find(|shared| crate::backend::custom::burn_dtype(**shared) == dtype);
    found.copied().ok_or_else(|| InteropError::Type { dtype: format!("{dtype:?}") })
}

fn bytes_of(tensor: &Tensor) -> u64 {
    tensor.len() as u64 * tensor.dtype().size()
}

fn foreign(
    runtime: &Arc<Runtime>,
    buffer: &wgpu::Buffer,
    shape: &[usize],
    dtype: DType,
) -> Result<Tensor, InteropError> {
    let dtype = stored(dtype)?;
    check_usage(buffer.usage(), BUFFER_USAGES)?;
    let elements = tensor::strided_len(shape).filter(|&len| len <= tensor::MAX_LEN);
    let elements =
        elements.ok_or_else(|| tensor::Error::TooManyElements { shape: shape.to_vec() })?;
    let bytes = elements as u64 * dtype.size();
    let (needed, found) = (buffer_size(bytes), buffer.size());
    if found < needed {
        return Err(InteropError::BufferSize { shape: shape.to_vec(), needed, found });
    }
    if !found.is_multiple_of(4) {
        return Err(InteropError::Alignment { offset: 0, size: found });
    }
    runtime.check_binding(bytes)?;
    runtime.check_foreign(buffer)?;
    let memory = runtime.foreign(buffer.clone(), bytes.next_multiple_of(4));
    Ok(Tensor::in_memory(runtime, memory, shape, dtype)?)
}

fn check_usage(found: wgpu::BufferUsages, needed: wgpu::BufferUsages) -> Result<(), InteropError> {
    let missing = needed.difference(found);
    if missing.is_empty() {
        return Ok(());
    }
    Err(InteropError::Usage { resource: "buffer", missing: format!("{missing:?}") })
}

/// Checks that a part of a buffer can be copied.
fn check_part(
    buffer: &wgpu::Buffer,
    offset: u64,
    size: u64,
    shape: &[usize],
) -> Result<(), InteropError> {
    if !offset.is_multiple_of(4) || !size.is_multiple_of(4) {
        return Err(InteropError::Alignment { offset, size });
    }
    let (needed, found) = (offset.saturating_add(size), buffer.size());
    if found < needed {
        return Err(InteropError::BufferSize { shape: shape.to_vec(), needed, found });
    }
    Ok(())
}
