//! Elementwise ops that are computed together: from pending expressions to the text of one kernel.
//!
//! - `graph`: the pending expressions that lead to a result, and the tensors that they read;
//! - `program`: what distinguishes their kernel from others, and its parameters;
//! - `text`: the WGSL of the kernel;
//! - `batch`: results of equal programs that are computed together;
//! - `prologue`: pending inputs that another kernel computes where it reads them;
//! - `epilogue`: ops on the result of another kernel that it computes before it stores;
//! - `composite`: a kernel with both.
//!
//! `fused.rs` defers ops and launches the kernels.

pub(super) mod batch;
pub(crate) mod composite;
pub(crate) mod epilogue;
pub(super) mod graph;
pub(super) mod program;
pub(crate) mod prologue;
mod text;
