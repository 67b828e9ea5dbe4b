//! The peer for burn-wgpu 0.21.

#[path = "../../shared/burn_0_21.rs"]
mod burn_api;
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
