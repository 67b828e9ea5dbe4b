//! Models of a program for Burn 0.23.

use burn::prelude::Device;
use burn_flex::PortDevice;
use burn_flex::wgsl::WgslDevice;

#[path = "../../tests/models.rs"]
mod models;

/// The default device, and the CPU, of which burn-wgsl takes Burn 0.21's backend.
fn devices() -> [Device; 2] {
    let devices = [WgslDevice::Software, WgslDevice::Cpu].map(PortDevice);
    assert_ne!(devices[0], devices[1], "there is a software adapter");
    devices.map(Device::new)
}
