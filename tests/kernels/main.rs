//! The results of ops and kernels.

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod chains;
mod ctc;
mod definitions;
mod elementwise;
mod fft;
mod large;
mod large_scores;
mod ops;
mod quantized;
mod reports;
mod rounds;
mod rows;
mod sizes;
mod sums;
mod types;
#[cfg(feature = "vision")]
mod vision;
