//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use burn_wgsl::WgslDevice;
use burn_wgsl::parallel::Workers;
use clap::Parser;

/// Train a small CNN on handwritten digits with the ranks of an MPI job, or with the devices of one process.
#[derive(Clone, Debug, Parser)]
#[command(name = "mpi-digits")]
pub struct Args {
    /// Devices, one for each worker of this process, or for each rank of a machine: gpu:0,gpu:1 [default: the GPUs of a
    /// machine; without MPI, one]
    #[arg(long, value_name = "SELECTORS", value_delimiter = ',')]
    devices: Vec<WgslDevice>,

    /// Allow several workers on one device
    #[arg(long)]
    oversubscribe: bool,

    /// Divide batches by the speed of the devices, measured in each epoch
    #[arg(long)]
    pub balance: bool,

    /// Fail if there are more or fewer workers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub workers: Option<u32>,

    /// Seconds that a worker waits for the others
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    deadline: u64,

    /// Send gradients as bf16 between processes
    #[arg(long)]
    pub bf16: bool,

    /// Passes over the training images
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub epochs: u32,

    /// Images per training step, of all workers
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub batch: u32,

    /// Random seed of the initial weights, the dropout and the order of the images
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Learning rate of the Adam optimiser
    #[arg(long, value_name = "X", default_value_t = 1e-3)]
    pub learning_rate: f64,

    /// Save checkpoints in this folder of the first rank's machine: after each epoch
    #[arg(long, value_name = "FOLDER")]
    pub checkpoints: Option<PathBuf>,

    /// Save a checkpoint also after every N steps
    #[arg(
        long,
        value_name = "N",
        requires = "checkpoints",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub checkpoint_every: Option<u64>,

    /// Continue after the newest checkpoint, also with another number of workers
    #[arg(long, requires = "checkpoints")]
    pub resume: bool,

    /// Train on this file instead of the built-in images; see the digits example
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
}

impl Args {
    /// Parses the command line. If it is invalid, prints the error and exits with code 2.
    pub fn from_command_line() -> Self {
        Self::parse()
    }

    /// Returns the workers.
    pub fn workers(&self) -> Workers {
        Workers::threads(self.devices.iter().copied())
            .oversubscribed(self.oversubscribe)
            .with_deadline(Duration::from_secs(self.deadline))
    }
}
