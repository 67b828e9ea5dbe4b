//! Ops as data: what the launchers compute, and what they are tested with. Nothing here launches a kernel.

pub mod cases;
pub mod map;
pub mod options;
pub mod table;
