//! burn-wgsl as a peer.

#[path = "../../../shared/burn_0_21.rs"]
mod burn_api;
#[path = "../../../shared/serve_0_21.rs"]
mod serve;
#[path = "../../../shared/workloads.rs"]
mod workloads;

use burn_wgsl::device::{Place, adapters};
use burn_wgsl::{Wgsl, WgslDevice};
use peer_protocol::DeviceChoice;

type Inner = Wgsl;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = match DeviceChoice::from_args()? {
        DeviceChoice::Software => WgslDevice::Software,
        DeviceChoice::Gpu => WgslDevice::Gpu(0),
    };
    let about = match device.place()? {
        Place::Cpu => "the CPU".into(),
        Place::Adapter(index) => {
            let facts = &adapters()[index].facts;
            format!("{} ({}, {} {})", facts.name, facts.api, facts.driver, facts.driver_info)
        }
    };
    serve::serve(device, about)
}
