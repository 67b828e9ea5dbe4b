//! The peer for burn-wgsl.

#[path = "../../../../shared/burn_0_21.rs"]
#[allow(unused_imports, dead_code, reason = "`burn-wgsl bench` uses more")]
mod burn_api;
#[path = "../../../../shared/decoding.rs"]
mod decoding;
#[path = "../../../../shared/models.rs"]
#[allow(dead_code, reason = "`burn-wgsl bench` uses more")]
mod models;
#[path = "../../../../shared/networks.rs"]
mod networks;
#[path = "../../../shared/serve_0_21.rs"]
mod serve;
#[path = "../../../shared/workloads.rs"]
mod workloads;

use burn_wgsl::device::{ResolvedDevice, adapters};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice};
use peer_protocol::{DeviceChoice, Work};

type Inner = Wgsl;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = match DeviceChoice::from_args()? {
        DeviceChoice::Software => WgslDevice::Software,
        DeviceChoice::Gpu => WgslDevice::Gpu(0),
    };
    let about = match device.resolve()? {
        ResolvedDevice::Cpu => "the CPU".into(),
        ResolvedDevice::Adapter(index) => {
            let info = &adapters()[index].info;
            format!("{} ({}, {} {})", info.name, info.api, info.driver, info.driver_info)
        }
    };
    serve::serve(device, about)
}

/// Runs a workload with products in f16.
fn autocast(mut work: Work, device: &WgslDevice) -> Option<Work> {
    let device = *device;
    Some(Box::new(move || {
        let _scope = burn_wgsl::autocast(&device, Precision::F16);
        work()
    }))
}
