//! Who takes part.

use anyhow::{Result, bail};

/// A peer: a program that speaks `peer_protocol`.
pub struct Peer {
    /// Its word on the command line.
    pub name: &'static str,
    /// Its column.
    pub title: &'static str,
    /// The package of this workspace that has it, if it is in Rust.
    pub package: Option<&'static str>,
    /// The program next to this one, or the script in this package's folder.
    pub program: &'static str,
    /// The crate that does the work, and the beginning of its version in the lock file.
    pub engine: Option<(&'static str, &'static str)>,
    /// What it was built with.
    pub features: &'static str,
}

const PEERS: &[Peer] = &[
    Peer {
        name: "wgsl",
        title: "burn-wgsl",
        package: Some("peer-ours"),
        program: "peer-wgsl",
        engine: Some(("burn-wgsl", "")),
        features: "default features; burn 0.21 with `autodiff`",
    },
    Peer {
        name: "wgpu22",
        title: "burn-wgpu 0.22, SPIR-V",
        package: Some("peer-wgpu22"),
        program: "peer-wgpu22",
        engine: Some(("burn-wgpu", "0.22")),
        features: "burn with `vulkan` (which includes `wgpu`) and its default features, among them `autotune` and `fusion`",
    },
    Peer {
        name: "wgpu22-wgsl",
        title: "burn-wgpu 0.22, WGSL",
        package: Some("peer-wgpu22-wgsl"),
        program: "peer-wgpu22-wgsl",
        engine: Some(("burn-wgpu", "0.22")),
        features: "burn with `wgpu` and its default features, among them `autotune` and `fusion`",
    },
    Peer {
        name: "wgpu21",
        title: "burn-wgpu 0.21, SPIR-V",
        package: Some("peer-wgpu21"),
        program: "peer-wgpu21",
        engine: Some(("burn-wgpu", "0.21")),
        features: "burn with `autodiff`, `vulkan` (which includes `wgpu`) and its default features, among them `autotune` and `fusion`",
    },
    Peer {
        name: "flex21",
        title: "burn-flex 0.21",
        package: Some("peer-ours"),
        program: "peer-flex21",
        engine: Some(("burn-flex", "0.21")),
        features: "default features; burn 0.21 with `autodiff`",
    },
    Peer {
        name: "torch",
        title: "PyTorch",
        package: None,
        program: "torch_peer.py",
        engine: None,
        features: "eager, TF32 off",
    },
];

/// The peers of these names, in their order.
pub fn named(names: &[String]) -> Result<Vec<&'static Peer>> {
    let known = || PEERS.iter().map(|peer| peer.name).collect::<Vec<_>>().join(", ");
    let mut found: Vec<&Peer> = Vec::new();
    for name in names {
        let Some(peer) = PEERS.iter().find(|peer| peer.name == name) else {
            bail!("no peer is called `{name}`: there are {}", known());
        };
        if found.iter().all(|earlier| earlier.name != peer.name) {
            found.push(peer);
        }
    }
    Ok(found)
}

impl Peer {
    /// The crate and version that the lock file pins.
    pub fn version(&self) -> Option<String> {
        let (name, beginning) = self.engine?;
        let lock = include_str!("../Cargo.lock");
        let packages = lock
            .split("[[package]]")
            .filter(|entry| entry.contains(&format!("\nname = \"{name}\"\n")));
        let mut versions =
            packages.filter_map(|entry| entry.split("\nversion = \"").nth(1)?.split('"').next());
        Some(format!("{name} {}", versions.find(|version| version.starts_with(beginning))?))
    }
}
