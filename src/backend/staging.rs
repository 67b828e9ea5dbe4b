//! Tensors that the host fills part by part, in memory that the device copies from.

use std::sync::Arc;

use burn_backend::{DType, ExecutionError, TensorData};
use burn_std::{Bytes, Shape};

use super::host_data::HostData;
use super::resolve::runtime;
use super::tensor::{Storage, WgslTensor, stored_dtype};
use super::transfer::{execution_error, travels_as_bytes, try_upload};
use crate::cpu::memory_error;
use crate::device::WgslDevice;
use crate::kernels::dequantize;
use crate::runtime::{Runtime, SMALL_UPLOAD, Upload, begin_op};
use crate::tensor::{self, Tensor, checked_len};

const OP: &str = "staging";

/// A tensor that the host is filling.
pub(crate) struct StagedData {
    device: WgslDevice,
    shape: Vec<usize>,
    dtype: DType,
    /// Its size, and what is there, in bytes.
    size: usize,
    filled: usize,
    memory: Memory,
}

enum Memory {
    /// Mapped from a GPU.
    Mapped { runtime: Arc<Runtime>, stored: tensor::DType, upload: Box<Upload<Arc<Runtime>>> },
    /// On the CPU, for types that the GPU stores in another way, and for small tensors, which share an upload.
    Host(Bytes),
}

impl StagedData {
    /// Begins a tensor.
    pub fn begin(
        device: &WgslDevice,
        shape: &[usize],
        dtype: DType,
    ) -> Result<Self, ExecutionError> {
        begin_op(OP);
        let size = checked_len(shape).and_then(|len| len.checked_mul(dtype.size()));
        let too_large = || execution_error(&format!("a batch of shape {shape:?} is too large"));
        let size = size.ok_or_else(too_large)?;
        let of_gpu = || {
            let runtime = runtime(device, OP)?;
            let stored = stored_dtype(dtype, &runtime)?;
            let as_it_is = stored.size() == dtype.size() as u64;
            let fits = as_it_is || travels_as_bytes(size as u64, stored, &runtime);
            (fits && size > SMALL_UPLOAD).then_some((runtime, stored))
        };
        let memory = match of_gpu() {
            Some((runtime, stored)) => {
                let upload = Upload::begin(runtime.clone(), size.next_multiple_of(4) as u64);
                let upload = upload.map_err(|error| execution_error(&error))?;
                Memory::Mapped { runtime, stored, upload: Box::new(upload) }
            }
            None => {
                if let Some(error) = memory_error(shape, dtype.size()) {
                    return Err(execution_error(&error));
                }
                // Aligned for any type, so that the tensor can keep it.
                let words = size.div_ceil(size_of::<u128>());
                Memory::Host(Bytes::from_elems(Vec::<u128>::with_capacity(words)))
            }
        };
        Ok(Self { device: *device, shape: shape.to_vec(), dtype, size, filled: 0, memory })
    }

    /// Copies the next elements.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), ExecutionError> {
        if bytes.len() > self.size - self.filled {
            return Err(self.wrong_size(self.filled + bytes.len()));
        }
        self.filled += bytes.len();
        match &mut self.memory {
            Memory::Mapped { upload, .. } => {
                upload.write(bytes).map_err(|error| execution_error(&error))
            }
            Memory::Host(all) => {
                all.extend_from_byte_slice(bytes);
                Ok(())
            }
        }
    }

    /// Returns the tensor.
    pub fn finish(self) -> Result<WgslTensor, ExecutionError> {
        begin_op(OP);
        if self.filled < self.size {
            return Err(self.wrong_size(self.filled));
        }
        let Self { device, shape, dtype, size, memory, .. } = self;
        let tensor = match memory {
            Memory::Mapped { runtime, stored, mut upload } => {
                let padding = size.next_multiple_of(4) - size;
                let allocation = upload.write(&[0; 4][..padding]).and_then(|()| upload.finish());
                let allocation = allocation.map_err(|error| execution_error(&error))?;
                let tensor = if stored.size() == dtype.size() as u64 {
                    Tensor::in_memory(&runtime, allocation, &shape, stored)
                } else {
                    let words = [size.div_ceil(4)];
                    Tensor::in_memory(&runtime, allocation, &words, tensor::DType::I32)
                        .and_then(|words| dequantize::bytes(&words, &shape, stored))
                };
                Storage::Gpu(tensor.map_err(|error| execution_error(&error))?)
            }
            Memory::Host(bytes) => {
                let data = TensorData { bytes, shape: Shape::from(shape), dtype };
                let data = HostData::new(data).map_err(|error| execution_error(&error))?;
                return try_upload(data, &device, OP).map_err(|error| execution_error(&error));
            }
        };
        Ok(WgslTensor::new(device, tensor))
    }

    fn wrong_size(&self, bytes: usize) -> ExecutionError {
        let (shape, size) = (&self.shape, self.dtype.size());
        execution_error(&format!(
            "a batch of shape {shape:?} has {} elements, not {}",
            self.size / size,
            bytes / size
        ))
    }
}
