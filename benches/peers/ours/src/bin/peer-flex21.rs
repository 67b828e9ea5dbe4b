//! The peer for burn-flex 0.21, Burn's CPU backend.

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

use burn::backend::Autodiff;

type Inner = burn_flex::Flex;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    serve::serve(Default::default(), "the CPU".into())
}

/// Burn has no autocast of its own.
fn autocast(_work: peer_protocol::Work, _device: &burn_api::Device) -> Option<peer_protocol::Work> {
    None
}
