//! `burn-wgsl`: the devices of this machine, and how fast they are.

mod bench;
mod devices;
mod text;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use burn_wgsl::device::DeviceError;
use clap::{Parser, Subcommand};

/// Burn on hand-written WGSL kernels.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the devices, what they can do, and which one the automatic choice takes.
    Devices {
        /// Prints one JSON document for programs.
        #[arg(long)]
        json: bool,
    },
    /// Measures how fast the devices are, side by side.
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    env_logger::init();
    let done = match Arguments::parse().command {
        Command::Devices { json } => devices::run(json),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("burn-wgsl: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Why a command ends early.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("cannot write {to} ({error})")]
    Write { to: String, error: io::Error },
    #[error("cannot write the report as JSON ({0})")]
    Json(#[from] serde_json::Error),
    #[error("cannot draw the picture ({0})")]
    Plot(String),
    #[error("{0}")]
    Usage(String),
    #[error("nothing could be measured; the table says why")]
    Nothing,
}

impl Failure {
    fn write(to: impl AsRef<Path>, error: io::Error) -> Self {
        Self::Write { to: to.as_ref().display().to_string(), error }
    }
}
