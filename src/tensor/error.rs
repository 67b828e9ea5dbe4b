//! Errors of kernel launches.

use thiserror::Error;

use super::MAX_RANK;
use crate::runtime::RuntimeError;

/// The result of a kernel launch.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a kernel launch.
#[derive(Debug, Clone, Error)]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The shapes of the operands are incompatible.
    #[error("shapes {lhs:?} and {rhs:?} are incompatible: {rule}")]
    Shape {
        /// The first operand's shape.
        lhs: Vec<usize>,
        /// The second operand's shape.
        rhs: Vec<usize>,
        /// The rule that the shapes must satisfy.
        rule: &'static str,
    },
    /// The tensor has more elements than a 32-bit index can address.
    #[error(
        "a tensor of shape {shape:?} has more elements than a 32-bit index can address, which are some \
         4.28e9; split it into smaller tensors"
    )]
    TooManyElements {
        /// The shape of the tensor.
        shape: Vec<usize>,
    },
    /// The uploaded data does not have the size of the tensor.
    #[error(
        "a tensor of shape {shape:?} has {expected} bytes, padded to 32-bit words, but the data has \
         {found}"
    )]
    DataSize {
        /// The shape of the tensor.
        shape: Vec<usize>,
        /// The size of the tensor in bytes.
        expected: u64,
        /// The size of the data in bytes.
        found: u64,
    },
    /// No kernel supports this option.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The view has more than `MAX_RANK` axes after merging.
    #[error(
        "a view of shape {shape:?} has more than {MAX_RANK} axes that cannot be merged; reshape it \
         to fewer axes first"
    )]
    TooManyAxes {
        /// The shape after merging.
        shape: Vec<usize>,
    },
    /// An invocation of the kernel would loop for too long.
    #[error(
        "an invocation of the kernel would take {rounds} rounds of its loops, and this device ends or resets kernels \
         above {limit}; split the tensor, or compute on the CPU device"
    )]
    TooManyRounds {
        /// The rounds of the loops.
        rounds: u64,
        /// The most that the device allows.
        limit: u64,
    },
    /// The operands are on different devices.
    #[error(
        "the operands are on different devices, {lhs} and {rhs}; move one to the other device with \
         `to_device` [BW41]"
    )]
    DeviceMismatch {
        /// The first operand's adapter.
        lhs: String,
        /// The second operand's adapter.
        rhs: String,
    },
}
