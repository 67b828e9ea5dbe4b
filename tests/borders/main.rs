//! What enters from outside: data, kernels, devices and buffers of the program, selectors, environment variables,
//! command lines.

#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "cli")]
mod command;
mod custom;
mod fuzz;
mod host_data;
mod host_memory;
mod interop;
mod selection;
mod variables;
