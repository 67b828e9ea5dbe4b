//! What `gpu-stats` and `shader-check` share, and the parts of them that need no driver.

pub mod assembly;
pub mod kernel;
pub mod statistics;
