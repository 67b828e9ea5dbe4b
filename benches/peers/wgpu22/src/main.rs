//! The peer for burn-wgpu 0.22. Kernels are compiled to SPIR-V with burn's feature `vulkan`, and to
//! WGSL without it.

#[allow(unused_imports, dead_code, reason = "`burn-wgsl bench` uses more")]
mod burn_api;
#[path = "../../../shared/decoding.rs"]
mod decoding;
#[path = "../../../shared/models.rs"]
#[allow(dead_code, reason = "`burn-wgsl bench` uses more")]
mod models;
#[path = "../../../shared/networks.rs"]
mod networks;
#[path = "../../shared/workloads.rs"]
mod workloads;

use burn::tensor::{Device, DeviceKind};
use peer_protocol::{DeviceChoice, Peer, Work};

struct Wgpu22(Device);

impl Peer for Wgpu22 {
    fn about(&self) -> String {
        self.0.identity().map_or_else(
            || "unknown".into(),
            |device| format!("{} ({})", device.name, device.fingerprint),
        )
    }

    fn prepare(&self, workload: &str) -> Option<Work> {
        workloads::prepare(workload, &self.0)
    }

    fn sync(&self) {
        self.0.sync().expect("synchronisation succeeds");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kind = match DeviceChoice::from_args()? {
        DeviceChoice::Software => DeviceKind::Cpu,
        DeviceChoice::Gpu => DeviceKind::DefaultDevice,
    };
    Ok(peer_protocol::serve(&Wgpu22(Device::wgpu(kind)))?)
}

/// Burn has no autocast of its own.
fn autocast(_work: peer_protocol::Work, _device: &burn_api::Device) -> Option<peer_protocol::Work> {
    None
}
