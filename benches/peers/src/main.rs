//! Runs the same workloads through burn-wgsl and other backends (peers) on one adapter. Each peer
//! is a separate process; their measurements are interleaved. The result is a table of medians and
//! ratios. `README.md` has the commands.

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
    /// Peers to measure; ratios are relative to the first: wgsl, wgpu22, wgpu22-wgsl, wgpu21,
    /// flex21, torch
    #[arg(long, value_delimiter = ',', num_args = 1.., default_values = DEFAULT_PEERS)]
    peers: Vec<String>,
    /// Workload names or prefixes such as `matmul` [default: all workloads; on a software adapter
    /// all but the large ones]
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    workloads: Vec<String>,
    /// Measurements of each workload per peer
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Adapter; burn-flex always runs on the CPU, PyTorch runs on the CPU unless this is `gpu`
    #[arg(long, value_enum)]
    device: Option<Device>,
    /// Results file (Markdown)
    #[arg(long, default_value = "results.md")]
    out: PathBuf,
    /// Timeout for one reply in seconds; the first replies of burn-wgpu include its autotuning
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// Training steps of the `peak-memory` workload
    #[arg(long, default_value_t = 200)]
    steps: u32,
    /// Folder for the peers' shader and tuning caches, kept between runs [default:
    /// `burn-wgsl-peers` in the system's temporary folder]
    #[arg(long)]
    caches: Option<PathBuf>,
    /// Python interpreter with PyTorch
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Use the existing builds of the peers
    #[arg(long)]
    no_build: bool,
    /// List the workloads and exit
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Device {
    /// A software adapter such as Mesa's lavapipe
    Software,
    /// The first physical GPU
    Gpu,
}

impl Device {
    pub fn name(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Gpu => "gpu",
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let selected = workloads::matching(&args.workloads, args.device != Some(Device::Software))?;
    if args.list {
        return print_stdout(&workloads::list(&selected));
    }
    let Some(device) = args.device else {
        bail!("no adapter selected: use --device software or --device gpu")
    };
    let caches = cache_folder(&args)?;
    let mut launchers = Vec::new();
    let mut skipped = Vec::new();
    for peer in peers::named(&args.peers)? {
        match prepare(peer, &args, device, &caches) {
            Ok(launcher) => launchers.push(launcher),
            Err(error) => {
                eprintln!("skipped {}: {error:#}", peer.title);
                skipped.push(format!("{}: {error:#}", peer.title));
            }
        }
    }
    ensure!(!launchers.is_empty(), "no peer can run: the messages above give the reasons");

    let mut measurement =
        Measurement::new(launchers, Duration::from_secs(args.limit), args.rounds, args.steps);
    let header = machine::header(device, measurement.launchers());
    let mut rows: Vec<(&Workload, Vec<Outcome>)> = Vec::new();
    for workload in selected {
        rows.push((workload, measurement.measure(workload)));
        // Write the file after each workload, so that an interrupted run keeps its results.
        let text = report::markdown(&header, measurement.peers(), &rows, &skipped);
        std::fs::write(&args.out, text)
            .with_context(|| format!("cannot write {}", args.out.display()))?;
        eprintln!("{}", report::line(measurement.peers(), &rows[rows.len() - 1]));
    }
    print_stdout(&report::table(measurement.peers(), &rows))?;
    eprintln!("{}", args.out.display());
    Ok(())
}

/// Returns the folder of the peers' caches.
///
/// # Errors
///
/// Returns an error if the folder is inside a Cargo package: cubecl would then put its cache in
/// that package's target folder.
fn cache_folder(args: &Args) -> Result<PathBuf> {
    let folder =
        args.caches.clone().unwrap_or_else(|| std::env::temp_dir().join("burn-wgsl-peers"));
    let folder = std::path::absolute(folder)?;
    if let Some(package) = folder.ancestors().find(|ancestor| ancestor.join("Cargo.toml").exists())
    {
        bail!(
            "--caches {} is inside the Cargo package {}: use a folder outside of it",
            folder.display(),
            package.display()
        );
    }
    Ok(folder)
}

/// Builds a peer, starts it and requests the description of its device.
///
/// # Errors
///
/// Returns an error if the peer cannot be built or does not start.
fn prepare(peer: &'static Peer, args: &Args, device: Device, caches: &Path) -> Result<Launcher> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let runner = std::env::current_exe()?;
    let (program, script) = match peer.package {
        Some(package) => {
            if !args.no_build {
                eprintln!("building {package}");
                // Build each package alone: a common build would unify the features of all peers.
                let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
                build
                    .args(["build", "--release", "--locked", "--quiet", "-p", package])
                    .current_dir(folder);
                let status = build
                    .status()
                    .context("cannot start cargo; --no-build uses existing builds")?;
                ensure!(status.success(), "cargo could not build {package}");
            }
            let program =
                runner.with_file_name(format!("{}{}", peer.program, std::env::consts::EXE_SUFFIX));
            ensure!(program.exists(), "{} was not built", program.display());
            (program, None)
        }
        None => {
            let import = Command::new(&args.python).args(["-c", "import torch"]).output();
            let python = args.python.display();
            let import = import.with_context(|| {
                format!("cannot start {python}; --python selects another interpreter")
            })?;
            let last_line = String::from_utf8_lossy(&import.stderr)
                .lines()
                .last()
                .unwrap_or_default()
                .to_owned();
            ensure!(
                import.status.success(),
                "{python} cannot import PyTorch ({last_line}): \
                 run `{python} -m pip install torch numpy`, \
                 or select another interpreter with --python"
            );
            // Where the programs were copied to, or in this package.
            let script = Some(runner.with_file_name(peer.program)).filter(|script| script.exists());
            (args.python.clone(), Some(script.unwrap_or_else(|| folder.join(peer.program))))
        }
    };
    let caches = caches.join(device.name()).join(peer.name);
    let mut launcher = Launcher { peer, program, script, device, caches, about: String::new() };
    let limit = Duration::from_secs(args.limit);
    launcher.about = match launcher.start(&launcher.caches)?.request("about", limit)? {
        Reply::About(text) => text,
        other => bail!("unexpected reply to `about`: {other:?}"),
    };
    Ok(launcher)
}

/// Writes to stdout. A closed pipe is not an error.
fn print_stdout(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}
