//! Elementwise ops that are computed together: from pending expressions to the text of one kernel.
//!
//! - `graph`: the pending expressions that lead to a result, and the tensors that they read;
//! - `program`: what distinguishes their kernel from others, and its parameters;
//! - `text`: the WGSL of the kernel;
//! - `batch`: results of equal programs that are computed together.
//!
//! `fused.rs` defers ops and launches the kernels.

pub(super) mod batch;
pub(super) mod graph;
pub(super) mod program;
mod text;
