//! The CPU backend: burn-flex, and functions for ops that it lacks or computes differently from the
//! kernels.
//!
//! A function with the name of a method of Burn's contract replaces burn-flex's method; the rows of
//! the contract select it with `else cpu`.

mod attention;
mod conv;
mod create;
mod ctc;
mod elementwise;
mod fft;
mod index;
mod interpolate;
mod memory;
mod norm;
mod product;
mod quantized;
mod reduce;
mod softmax;
mod sort;

pub(crate) use attention::*;
pub(crate) use conv::*;
pub(crate) use create::*;
pub(crate) use ctc::*;
pub(crate) use elementwise::*;
pub(crate) use fft::*;
pub(crate) use index::*;
pub(crate) use interpolate::*;
pub(crate) use memory::{check_memory, is_large, memory_error};
pub(crate) use norm::*;
pub(crate) use product::*;
pub(crate) use quantized::*;
pub(crate) use reduce::*;
pub(crate) use softmax::*;
pub(crate) use sort::*;
