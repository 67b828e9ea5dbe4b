//! The scaler, with Burn 0.23.

#[path = "../../../scaler/tests/scales.rs"]
mod scales;
