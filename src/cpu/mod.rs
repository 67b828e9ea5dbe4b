//! The CPU backend: burn-flex, and functions for ops that it lacks or computes differently from the
//! kernels.
//!
//! A function with the name of a method of Burn's contract replaces burn-flex's method; the rows of
//! the contract select it with `else cpu`.
//!
//! Without the feature `cpu`, this module has only uninhabited types.

/// Declares the modules of the CPU backend.
macro_rules! modules {
    ($($module:ident)*) => {
        $(
            #[cfg(feature = "cpu")]
            mod $module;
            #[cfg(feature = "cpu")]
            pub(crate) use $module::*;
        )*
    };
}

#[cfg(not(feature = "cpu"))]
mod absent;
#[cfg_attr(not(feature = "cpu"), allow(dead_code, reason = "the CPU backend uses the rest"))]
mod memory;

#[cfg(not(feature = "cpu"))]
pub(crate) use absent::*;
pub(crate) use memory::{check_memory, is_large, memory_error};

modules! {
    attention
    conv
    create
    ctc
    elementwise
    fft
    index
    interpolate
    norm
    observed
    present
    product
    quantized
    reduce
    softmax
    sort
}
