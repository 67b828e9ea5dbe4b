//! Modules that the launchers share. None of them has a shader of its own.

pub(crate) mod attention_definition;
pub(crate) mod attention_units;
pub mod cases;
pub(crate) mod conv_geometry;
pub(crate) mod expression;
pub(crate) mod gemm;
pub(crate) mod launch;
pub mod options;
pub(crate) mod padded_input;
pub(crate) mod partition;
pub(crate) mod parts;
pub(crate) mod policy;
pub(crate) mod software;
pub(crate) mod strategy;
pub mod table;
pub(crate) mod team;
pub mod tuning;
pub(crate) mod units;
pub(crate) mod walk;
