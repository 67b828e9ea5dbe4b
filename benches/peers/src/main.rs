//! burn-wgsl and its peers, each a process of its own, take turns at the same workloads on the same adapter; a table of
//! medians and ratios comes out. `README.md` has the commands.

mod machine;
mod measure;
mod peers;
mod process;
mod report;
mod workloads;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use peer_protocol::Reply;

use measure::{Measurement, Outcome};
use peers::Peer;
use process::Launcher;
use workloads::Workload;

const DEFAULT_PEERS: [&str; 6] = ["wgsl", "wgpu22", "wgpu22-wgsl", "wgpu21", "flex21", "torch"];

#[derive(Parser)]
#[command(about, version)]
struct Args {
    /// The peers, the first of which the others are compared with: wgsl, wgpu22, wgpu22-wgsl, wgpu21, flex21, torch
    #[arg(long, value_delimiter = ',', num_args = 1.., default_values = DEFAULT_PEERS)]
    peers: Vec<String>,
    /// Names of workloads, or beginnings of names such as `matmul`; all of them if none is given
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    workloads: Vec<String>,
    /// How often each peer has its turn at a workload
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The adapter; burn-flex runs on the CPU either way, PyTorch unless it is `gpu`
    #[arg(long, value_enum)]
    device: Option<Device>,
    /// The results, as Markdown
    #[arg(long, default_value = "results.md")]
    out: PathBuf,
    /// The longest that one answer may take, in seconds; the first answers of burn-wgpu include its autotuning
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// Training steps for the peak of memory
    #[arg(long, default_value_t = 200)]
    steps: u32,
    /// Where the peers keep caches of shaders and tuning from run to run [default: a folder of the system's temporary one]
    #[arg(long)]
    caches: Option<PathBuf>,
    /// The Python that has PyTorch
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Take the peers as they were built before
    #[arg(long)]
    no_build: bool,
    /// Only show the workloads
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Device {
    /// A software adapter such as Mesa's lavapipe
    Software,
    /// The first real GPU
    Gpu,
}

impl Device {
    pub fn word(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Gpu => "gpu",
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let chosen = workloads::matching(&args.workloads)?;
    if args.list {
        return show(&workloads::list(&chosen));
    }
    let Some(device) = args.device else {
        bail!("say on which adapter: --device software, or --device gpu")
    };
    let caches = caches(&args)?;
    let mut launchers = Vec::new();
    let mut skipped = Vec::new();
    for peer in peers::named(&args.peers)? {
        match ready(peer, &args, device, &caches) {
            Ok(launcher) => launchers.push(launcher),
            Err(why) => {
                eprintln!("skipped {}: {why:#}", peer.title);
                skipped.push(format!("{}: {why:#}", peer.title));
            }
        }
    }
    ensure!(!launchers.is_empty(), "none of the peers can run");

    let mut measurement =
        Measurement::new(launchers, Duration::from_secs(args.limit), args.rounds, args.steps);
    let facts = machine::facts(device, measurement.launchers());
    let mut rows: Vec<(&Workload, Vec<Outcome>)> = Vec::new();
    for workload in chosen {
        rows.push((workload, measurement.take(workload)));
        // Written after each workload, so that a run that is cut short leaves what it has.
        let text = report::markdown(&facts, measurement.peers(), &rows, &skipped);
        std::fs::write(&args.out, text)
            .with_context(|| format!("cannot write {}", args.out.display()))?;
        eprintln!("{}", report::line(measurement.peers(), &rows[rows.len() - 1]));
    }
    show(&report::table(measurement.peers(), &rows))?;
    eprintln!("{}", args.out.display());
    Ok(())
}

/// The folder of the peers' caches. Below a `Cargo.toml` cubecl would keep its own in that package's target folder.
fn caches(args: &Args) -> Result<PathBuf> {
    let folder =
        args.caches.clone().unwrap_or_else(|| std::env::temp_dir().join("burn-wgsl-peers"));
    let folder = std::path::absolute(folder)?;
    if let Some(package) = folder.ancestors().find(|above| above.join("Cargo.toml").exists()) {
        bail!(
            "--caches {} is inside the package {}: choose a folder outside",
            folder.display(),
            package.display()
        );
    }
    Ok(folder)
}

/// Builds a peer, or finds out why it cannot run.
fn ready(peer: &'static Peer, args: &Args, device: Device, caches: &Path) -> Result<Launcher> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (program, script) = match peer.package {
        Some(package) => {
            if !args.no_build {
                eprintln!("building {package}");
                // One by one: built together they would share the union of the features that each asks for.
                let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
                build
                    .args(["build", "--release", "--locked", "--quiet", "-p", package])
                    .current_dir(folder);
                let status =
                    build.status().context("cannot start cargo; --no-build does without it")?;
                ensure!(status.success(), "cargo could not build {package}");
            }
            let here = std::env::current_exe()?;
            let program =
                here.with_file_name(format!("{}{}", peer.program, std::env::consts::EXE_SUFFIX));
            ensure!(program.exists(), "{} is missing: leave out --no-build", program.display());
            (program, None)
        }
        None => {
            let found = Command::new(&args.python).args(["-c", "import torch"]).output();
            let python = args.python.display();
            let found = found
                .with_context(|| format!("{python} cannot be started; --python names another"))?;
            let last = String::from_utf8_lossy(&found.stderr)
                .lines()
                .last()
                .unwrap_or_default()
                .to_owned();
            ensure!(
                found.status.success(),
                "{python} has no PyTorch ({last}): `{python} -m pip install torch numpy`, or --python"
            );
            (args.python.clone(), Some(folder.join(peer.program)))
        }
    };
    let caches = caches.join(device.word()).join(peer.name);
    let mut launcher = Launcher { peer, program, script, device, caches, about: String::new() };
    launcher.about =
        match launcher.start(&launcher.caches)?.ask("about", Duration::from_secs(args.limit))? {
            Reply::About(text) => text,
            other => bail!("an unexpected answer: {other:?}"),
        };
    Ok(launcher)
}

/// To stdout, which may be a pipe that nobody reads to its end.
fn show(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
