//! Why a job cannot start, or ended.

use std::time::Duration;

use burn_wgsl::device::DeviceError;
use burn_wgsl::parallel::ParallelError;
use thiserror::Error;

/// An error of [`run`](crate::run).
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum MpiError {
    /// A worker failed.
    #[error(transparent)]
    Parallel(#[from] ParallelError),
    /// The launcher belongs to another MPI library: each process is alone.
    #[error(
        "{variable} says that there are {launched} ranks, and the MPI library finds {found}: the launcher belongs to \
         another MPI library than `{library}`; start the program with that one's `mpirun`, or with \
         `srun --mpi=pmix` (`srun --mpi=list` shows what there is)"
    )]
    OtherLauncher {
        /// The variable of the launcher.
        variable: &'static str,
        /// The ranks that it started.
        launched: usize,
        /// The ranks that MPI finds.
        found: usize,
        /// The MPI library of the program.
        library: String,
    },
    /// There are more or fewer workers than expected.
    #[error(
        "{expected} workers are expected, and there are {found}; start as many, or expect others"
    )]
    World {
        /// The workers that the program expects.
        expected: usize,
        /// The workers that there are.
        found: usize,
    },
    /// A machine has more ranks than devices.
    #[error(
        "{machine} has {ranks} ranks for these devices: {list}; start fewer ranks on it, or allow several on a device \
         with `Workers::oversubscribed` (`--oversubscribe`), also where the launcher shows each rank a GPU of its own"
    )]
    FewDevices {
        /// The machine.
        machine: String,
        /// Its ranks.
        ranks: usize,
        /// Their selectors.
        list: String,
    },
    /// The devices of this machine cannot be listed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// MPI was started before in this process.
    #[error("MPI is already started in this process; it can be started once")]
    Started,
    /// MPI does not start in time, such as when a rank is missing.
    #[error(
        "MPI has not started within {0:?}; a rank does not start, or the deadline is too short"
    )]
    Slow(Duration),
    /// MPI failed while it started.
    #[error("the thread of MPI ended while it started; what it printed says why")]
    Ended,
    /// The system starts no thread.
    #[error("the thread of MPI cannot be started: {0}")]
    NoThread(String),
}
