//! The peer for burn-flex 0.21, Burn's CPU backend.

#[path = "../../../shared/burn_0_21.rs"]
mod burn_api;
#[path = "../../../shared/serve_0_21.rs"]
mod serve;
#[path = "../../../shared/workloads.rs"]
mod workloads;

use burn::backend::Autodiff;

type Inner = burn_flex::Flex;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    serve::serve(Default::default(), "the CPU".into())
}
