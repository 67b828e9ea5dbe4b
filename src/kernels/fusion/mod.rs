//! Pending results, and the kernels that compute several of them together.
//!
//! - `graph`: the pending expressions that lead to a result, and the tensors that they read;
//! - `program`: what distinguishes their kernel from others, and its parameters;
//! - `text`: the WGSL of the kernel;
//! - `registry`: all programs, by their indices;
//! - `batch`: results of equal programs that are computed together;
//! - `fused`: the kernel;
//! - `lines`, `lines_text`: the kernel of results that reduce lines, and its WGSL;
//! - `reductions`: how reductions become pending;
//! - `composite`: other kernels, with programs for their inputs and results;
//! - `schedule`: the steps that all kernels of pending results go through;
//! - `prologue`: pending inputs that another kernel computes where it reads them;
//! - `epilogue`: ops on the result of another kernel that it computes before it stores;
//! - `compute`: which kernels compute a result whose memory is needed;
//! - `pending`: how results become pending;
//! - `switch`: whether they do.

mod batch;
pub(crate) mod composite;
mod compute;
pub(crate) mod epilogue;
pub mod fused;
mod graph;
pub(crate) mod lines;
mod lines_text;
pub(crate) mod pending;
pub(crate) mod program;
pub(crate) mod prologue;
pub(crate) mod reductions;
mod registry;
mod schedule;
pub(crate) mod switch;
mod text;

pub use switch::set_fusion;
