//! The `burn-wgsl` command: lists devices, finds out why one does not work, explains errors, benchmarks them and
//! tunes matrix multiplication.

mod bench;
mod devices;
mod doctor;
mod explain;
mod new;
mod output;
mod top;
mod tune;

use std::io;
use std::process::ExitCode;

use burn_wgsl::device::{DeviceError, set_quiet};
use burn_wgsl::{Tuning, set_tuning};
use clap::{Parser, Subcommand};

/// List, benchmark and tune the devices that the Burn backend burn-wgsl can use
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Ignore saved results of `tune` and use the built-in strategies
    #[arg(long, global = true)]
    no_tune: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List devices with their limits and features, and the device that `auto` selects
    Devices {
        /// Print one JSON document instead of tables
        #[arg(long)]
        json: bool,
    },
    /// Find out whether a GPU can be used, why not and what fixes it, whether its results are right,
    /// and how fast it is
    Doctor(doctor::Arguments),
    /// Write a program to start from: data, a network, a loop that saves and continues, a test, a container and a
    /// Slurm job
    New(new::Arguments),
    /// Explain a code of an error or of `doctor`, such as BW11: its cause, how to see it, and the cure
    Explain(explain::Arguments),
    /// Show the GPUs of this machine (utilisation, memory, temperature, power) and the processes that
    /// share their status, as they change
    Top(top::Arguments),
    /// Benchmark ops and training steps on several devices and compare them
    #[command(after_long_help = BENCH_EXAMPLES)]
    Bench(bench::Arguments),
    /// Find the fastest matrix multiplication strategies and save them for later runs
    Tune(tune::Arguments),
}

const BENCH_EXAMPLES: &str = "\
Examples:
  Compare the best GPU with the CPU:
    burn-wgsl bench all --quick
  Benchmark one suite and plot the results:
    burn-wgsl bench matmul --plot matmul.svg
  List the kernels of a training step with their GPU time:
    burn-wgsl bench train --profile
  Compare two GPUs and write JSON to standard output:
    burn-wgsl bench transfer --device gpu:0 --device gpu:1 --json -";

fn main() -> ExitCode {
    env_logger::init();
    // The commands report a missing GPU themselves.
    set_quiet(true);
    let Arguments { no_tune, command } = Arguments::parse();
    if no_tune {
        set_tuning(Tuning::Off);
    }
    let result = match command {
        Command::Devices { json } => devices::run(json),
        Command::Doctor(arguments) => match doctor::run(&arguments) {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        Command::New(arguments) => new::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// An error that ends a command.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Tune(#[from] burn_wgsl::TuneError),
    #[error("cannot write to {to}: {error}")]
    Write { to: String, error: io::Error },
    #[error("cannot serialise the report as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("cannot draw the plot: {0}")]
    Plot(String),
    #[error("{0}")]
    Usage(String),
    #[error("the measurement failed: {0}")]
    Measurement(String),
    #[error(
        "nothing was measured: every workload was skipped or failed; see the report for the reasons"
    )]
    NothingMeasured,
}
