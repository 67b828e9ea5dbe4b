//! Errors of kernels of a program.

use thiserror::Error;

use crate::device::DeviceError;
use crate::runtime::RuntimeError;
use crate::tensor;

/// An error of a kernel of a program.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The signature has another form than `x: f32[n, m], y: i32[n] -> z: f32[m]`.
    #[error("the signature of the kernel {kernel}, `{signature}`: {message}")]
    Signature {
        /// The kernel.
        kernel: &'static str,
        /// The signature.
        signature: &'static str,
        /// What is wrong.
        message: String,
    },
    /// The text declares other operands or parameters than the signature and the parameter struct.
    #[error("{file}: the kernel {kernel} {message}")]
    Declaration {
        /// The kernel.
        kernel: &'static str,
        /// The file, or the name of a kernel whose text is in the program.
        file: &'static str,
        /// What differs.
        message: String,
    },
    /// The number of inputs or outputs differs from that of the signature.
    #[error("the kernel {kernel} has {expected} {operands}, but the call has {found}")]
    Count {
        /// The kernel.
        kernel: &'static str,
        /// `inputs` or `outputs`.
        operands: &'static str,
        /// The number in the signature.
        expected: usize,
        /// The number in the call.
        found: usize,
    },
    /// The device binds fewer buffers.
    #[error(
        "the kernel {kernel} has {found} inputs and outputs, but the device binds at most {limit}"
    )]
    TooManyOperands {
        /// The kernel.
        kernel: &'static str,
        /// The number of inputs and outputs.
        found: usize,
        /// The limit of the device.
        limit: usize,
    },
    /// An operand has another shape than the signature says, or a size is missing.
    #[error("the kernel {kernel}: {message}")]
    Shape {
        /// The kernel.
        kernel: &'static str,
        /// The operand, its shape and what the signature says.
        message: String,
    },
    /// An operand has another element type than the signature says.
    #[error("the kernel {kernel}: `{operand}` is {found}, but the signature says {expected}")]
    Type {
        /// The kernel.
        kernel: &'static str,
        /// The operand.
        operand: String,
        /// The type in the signature.
        expected: String,
        /// The type of the tensor.
        found: String,
    },
    /// The tensors are on the CPU, for which the kernel has no function.
    #[error(
        "the kernel {kernel} has no function for the CPU; add one with `Kernel::on_cpu`, or use a GPU"
    )]
    NoCpuFunction {
        /// The kernel.
        kernel: &'static str,
    },
    /// The kernel's function for the CPU returned other data than the signature says.
    #[error("the function for the CPU of the kernel {kernel} {message}")]
    CpuFunction {
        /// The kernel.
        kernel: &'static str,
        /// What differs.
        message: String,
    },
    /// The device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The tensors do not fit on the device or are on different ones, or the kernel does not compile:
    /// see [`RuntimeError::Wgsl`].
    #[error(transparent)]
    Launch(#[from] tensor::Error),
}

impl From<RuntimeError> for KernelError {
    fn from(error: RuntimeError) -> Self {
        Self::Launch(error.into())
    }
}
