//! Models of a program for Burn 0.22.

use burn::prelude::Device;

#[path = "../../../tests/models.rs"]
mod models;

/// The device of burn-wgsl, and Burn's CPU backend.
fn devices() -> [Device; 2] {
    [Device::default(), Device::flex()]
}
