//! The ops. A file has the methods that both contracts have, a row each, and code for the others.

mod activation;
mod adaptive;
mod batch_norm;
mod boolean;
mod float;
mod int;
mod module;
mod nearest_exact;
pub(crate) mod padding;
mod quantized;
pub(crate) mod update;
pub(crate) mod windows;

/// Writes methods that convert their arguments, call burn-wgsl's method of the same name, and
/// convert the result.
macro_rules! forward {
    ($($name:ident($($arg:ident: $kind:ty),* $(,)?) -> $result:ty;)*) => {
        $(fn $name($($arg: $kind),*) -> $result {
            Wgsl::$name($($arg.converted()),*).converted()
        })*
    };
}

/// As `forward`, for slicing: lists are converted to lists, which the methods borrow.
macro_rules! forward_slices {
    ($slice:ident, $slice_assign:ident) => {
        fn $slice(tensor: F, slices: &[Slice]) -> F {
            Wgsl::$slice(tensor.converted(), &slices.converted()).converted()
        }

        fn $slice_assign(tensor: F, slices: &[Slice], value: F) -> F {
            Wgsl::$slice_assign(tensor.converted(), &slices.converted(), value.converted())
                .converted()
        }
    };
}

use {forward, forward_slices};

/// The names in the rows.
mod prelude {
    pub use std::ops::Range;

    pub use burn_backend::ops::{
        AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConvOptions,
        GridSampleOptions, InterpolateOptions, UnfoldOptions,
    };
    pub use burn_backend::tensor::IndexingUpdateOp;
    pub use burn_backend::{
        BoolDType, Distribution, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice,
        TensorData,
    };
    pub use burn_wgsl::Wgsl;

    pub(super) use super::{forward, forward_slices};
    pub use crate::backend::Port;
    pub use crate::contract::Convert;
    pub use crate::device::PortDevice as Device;
    pub use crate::tensor::{QuantizedTensor as Q, Tensor as B, Tensor as F, Tensor as I};
}
