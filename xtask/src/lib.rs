//! Code that `cargo xtask` shares with `xtask-web`, the program that builds the web pages.

pub mod debian;
pub mod digits;
pub mod npm;
pub mod process;

/// The exit code of `xtask-web` when a tool that it needs is not installed.
pub const EXIT_TOOL_MISSING: u8 = 3;
