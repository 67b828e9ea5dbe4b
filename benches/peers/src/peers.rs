//! The table of peers.

use anyhow::{Result, bail};

/// A peer: a backend in a program that implements `peer_protocol`.
pub struct Peer {
    /// Name on the command line.
    pub name: &'static str,
    /// Column title in the table.
    pub title: &'static str,
    /// Package of this workspace, for a peer in Rust.
    pub package: Option<&'static str>,
    /// Program next to the runner's executable, or script in this package's folder.
    pub program: &'static str,
    /// Crate of the backend and the prefix of its version in the lock file.
    pub backend: Option<(&'static str, &'static str)>,
    /// Features of the build, for the results file.
    pub features: &'static str,
}

const PEERS: &[Peer] = &[
    Peer {
        name: "wgsl",
        title: "burn-wgsl",
        package: Some("peer-ours"),
        program: "peer-wgsl",
        backend: Some(("burn-wgsl", "")),
        features: "default features; burn 0.21 with `autodiff`",
    },
    Peer {
        name: "wgpu22",
        title: "burn-wgpu 0.22, SPIR-V",
        package: Some("peer-wgpu22"),
        program: "peer-wgpu22",
        backend: Some(("burn-wgpu", "0.22")),
        features: "burn with `vulkan` (which includes `wgpu`) and its default features, including \
                   `autotune` and `fusion`",
    },
    Peer {
        name: "wgpu22-wgsl",
        title: "burn-wgpu 0.22, WGSL",
        package: Some("peer-wgpu22-wgsl"),
        program: "peer-wgpu22-wgsl",
        backend: Some(("burn-wgpu", "0.22")),
        features: "burn with `wgpu` and its default features, including `autotune` and `fusion`",
    },
    Peer {
        name: "wgpu21",
        title: "burn-wgpu 0.21, SPIR-V",
        package: Some("peer-wgpu21"),
        program: "peer-wgpu21",
        backend: Some(("burn-wgpu", "0.21")),
        features: "burn with `autodiff`, `vulkan` (which includes `wgpu`) and its default \
                   features, including `autotune` and `fusion`",
    },
    Peer {
        name: "flex21",
        title: "burn-flex 0.21",
        package: Some("peer-ours"),
        program: "peer-flex21",
        backend: Some(("burn-flex", "0.21")),
        features: "default features; burn 0.21 with `autodiff`",
    },
    Peer {
        name: "torch",
        title: "PyTorch",
        package: None,
        program: "torch_peer.py",
        backend: None,
        features: "eager, TF32 off",
    },
];

/// Returns the peers with the given names, in the same order and without duplicates.
///
/// # Errors
///
/// Returns an error if a name is unknown.
pub fn named(names: &[String]) -> Result<Vec<&'static Peer>> {
    let known_names = || PEERS.iter().map(|peer| peer.name).collect::<Vec<_>>().join(", ");
    let mut found: Vec<&Peer> = Vec::new();
    for name in names {
        let Some(peer) = PEERS.iter().find(|peer| peer.name == name) else {
            bail!("unknown peer `{name}`: use {}", known_names());
        };
        if found.iter().all(|earlier| earlier.name != peer.name) {
            found.push(peer);
        }
    }
    Ok(found)
}

impl Peer {
    /// Returns the name of the backend's crate and its version in the lock file.
    pub fn version(&self) -> Option<String> {
        let (name, prefix) = self.backend?;
        let lock = include_str!("../Cargo.lock");
        let packages = lock
            .split("[[package]]")
            .filter(|entry| entry.contains(&format!("\nname = \"{name}\"\n")));
        let mut versions =
            packages.filter_map(|entry| entry.split("\nversion = \"").nth(1)?.split('"').next());
        Some(format!("{name} {}", versions.find(|version| version.starts_with(prefix))?))
    }
}
