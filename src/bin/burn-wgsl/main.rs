//! `burn-wgsl`: the devices of this machine, and how fast they are.

mod bench;
mod devices;
mod text;
mod tune;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use burn_wgsl::device::DeviceError;
use burn_wgsl::{Tuning, set_tuning};
use clap::{Parser, Subcommand};

/// Burn on hand-written WGSL kernels.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Leave aside what `tune` has found out: the built-in choices decide
    #[arg(long, global = true)]
    no_tune: bool,
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
    /// Finds out how matrix products are fastest, and keeps it for later processes.
    Tune(tune::Arguments),
}

fn main() -> ExitCode {
    env_logger::init();
    let Arguments { no_tune, command } = Arguments::parse();
    if no_tune {
        set_tuning(Tuning::Off);
    }
    let done = match command {
        Command::Devices { json } => devices::run(json),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
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
    #[error(transparent)]
    Tune(#[from] burn_wgsl::TuneError),
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
