//! The peer for burn-wgpu 0.21.

#[path = "../../../shared/burn_0_21.rs"]
#[allow(unused_imports, dead_code, reason = "`burn-wgsl bench` uses more")]
mod burn_api;
#[path = "../../../shared/decoding.rs"]
mod decoding;
#[path = "../../../shared/models.rs"]
#[allow(dead_code, reason = "`burn-wgsl bench` uses more")]
mod models;
#[path = "../../../shared/networks.rs"]
mod networks;
#[path = "../../shared/serve_0_21.rs"]
mod serve;
#[path = "../../shared/workloads.rs"]
mod workloads;

use burn::backend::Autodiff;
use burn::backend::wgpu::{Vulkan, WgpuDevice};
use peer_protocol::DeviceChoice;

type Inner = Vulkan;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = match DeviceChoice::from_args()? {
        DeviceChoice::Software => WgpuDevice::Cpu,
        DeviceChoice::Gpu => WgpuDevice::DefaultDevice,
    };
    let about = format!("the adapter of `WgpuDevice::{device:?}`");
    serve::serve(device, about)
}

/// Burn has no autocast of its own.
fn autocast(_work: peer_protocol::Work, _device: &burn_api::Device) -> Option<peer_protocol::Work> {
    None
}
