//! `burn_wgsl::parallel` on several machines: a worker for each rank of an MPI job.
//!
//! [`run`] runs a program as [`burn_wgsl::parallel::run`] does, with the same [`Worker`](burn_wgsl::parallel::Worker).
//! Started by `mpirun` or `srun`, each process is a worker. Without them, the process has a worker for each device that
//! is named.
//!
//! ```no_run
//! use burn::tensor::Tensor;
//! use burn_wgsl::Wgsl;
//! use burn_wgsl::parallel::{ParallelError, Workers};
//! use burn_wgsl_mpi::Job;
//!
//! // None: each rank has a GPU of its machine.
//! let job = Job::new(Workers::threads([])).expects(4);
//! burn_wgsl_mpi::run(job, |worker| {
//!     let x = Tensor::<Wgsl, 1>::ones([8], &worker.device());
//!     let sum = worker.sum(&[x.sum().into_scalar().into()])?;
//!     if worker.is_first() {
//!         println!("{} of {} workers", sum[0], worker.world());
//!     }
//!     Ok::<_, ParallelError>(())
//! })?;
//! # Ok::<(), burn_wgsl_mpi::MpiError>(())
//! ```
//!
//! - **Devices.** The ranks of a machine take the devices of the list in turn, or its GPUs.
//! - **Sums** have the same bits on all ranks, in f32 those of threads. [`Job::in_bf16`] halves the bytes.
//! - **Before the program**, ranks check that the launcher belongs to this MPI library, that there are as many ranks as
//!   expected, and that all run the same executable.
//! - **Failures.** Exchanges are started and polled. If a rank fails, or does not come before the deadline, each other
//!   one ends with an error that names it, and then MPI ends the job.
//!
//! All calls of MPI are made by one thread of a process, so that an MPI library without support for several suffices.

mod control;
mod error;
mod job;
mod launcher;
mod link;
mod ranks;
mod shared;

pub use error::MpiError;
pub use job::{Job, run};
