//! The peer for a Burn 0.21 backend. The crate root defines the backend, `Inner`.

use burn::tensor::backend::Backend;
use peer_protocol::{Peer, Work};

use crate::burn_api::Device;
use crate::{Inner, workloads};

struct Burn021 {
    device: Device,
    about: String,
}

impl Peer for Burn021 {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn prepare(&self, workload: &str) -> Option<Work> {
        workloads::prepare(workload, &self.device)
    }

    fn sync(&self) {
        Inner::sync(&self.device).expect("synchronisation succeeds");
    }
}

/// Answers the runner's commands until the end of stdin.
pub fn serve(device: Device, about: String) -> Result<(), Box<dyn std::error::Error>> {
    Ok(peer_protocol::serve(&Burn021 { device, about })?)
}
