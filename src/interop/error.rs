//! Errors of buffers and textures of the program.

use thiserror::Error;

use crate::custom::KernelError;
use crate::device::DeviceError;
use crate::tensor;

/// An error of a buffer or a texture of the program.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum InteropError {
    /// The device is the CPU, which has no buffers.
    #[error("the device is the CPU, which has no buffers; use a GPU")]
    Cpu,
    /// The element type is not stored in the same form on a GPU.
    #[error(
        "elements of type {dtype} cannot be shared with the program; use f32, f16, bf16, i32 or u32"
    )]
    Type {
        /// The type.
        dtype: String,
    },
    /// The buffer is too small.
    #[error(
        "the buffer has {found} bytes, but a tensor of shape {shape:?} needs {needed}: `interop::buffer_size` \
         returns the \
         size, which is rounded up"
    )]
    BufferSize {
        /// The shape of the tensor.
        shape: Vec<usize>,
        /// The size that is needed.
        needed: u64,
        /// The size of the buffer.
        found: u64,
    },
    /// An offset or a size is not a multiple of four bytes.
    #[error("the offset {offset} and the size {size} must be multiples of 4 bytes")]
    Alignment {
        /// The offset.
        offset: u64,
        /// The size.
        size: u64,
    },
    /// The buffer or the texture was created without a usage that is needed.
    #[error("the {resource} was created without the usage {missing}")]
    Usage {
        /// `buffer` or `texture`.
        resource: &'static str,
        /// The usage.
        missing: String,
    },
    /// The texture has another size, or a format that is not supported.
    #[error("the texture {message}")]
    Texture {
        /// What differs.
        message: String,
    },
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The memory is not available, or the device failed.
    #[error(transparent)]
    Tensor(#[from] tensor::Error),
    /// The kernel that converts pixels failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}
