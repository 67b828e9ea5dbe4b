//! One training program on several devices: each worker trains a copy of the model with its part of a batch, and all
//! take the same step with the mean of their gradients.
//!
//! [`run`] runs the program once for each worker: alone, or in a thread with a device each. The program is the same for
//! all; besides the loop for one device, it has these lines:
//!
//! ```
//! use burn::nn::LinearConfig;
//! use burn::optim::{GradientsParams, Optimizer, SgdConfig};
//! use burn::tensor::{Distribution, Tensor};
//! use burn_wgsl::parallel::{self, ParallelError, Workers};
//! use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
//!
//! type B = Autodiff<Wgsl>;
//!
//! // Or `"gpu:0,gpu:1".parse()?`.
//! let workers = Workers::threads([WgslDevice::Cpu, WgslDevice::default()]).oversubscribed(true);
//! let losses = parallel::run(workers, |worker| {
//!     let device = worker.device();
//!     let mut model = worker.broadcast(LinearConfig::new(4, 2).init::<B>(&device))?;
//!     let mut optimizer = SgdConfig::new().init();
//!     let samples = worker.batch_size(64)?; // of a batch of 64, this worker's part
//!     let mut last = 0.0;
//!     for _ in 0..3 {
//!         let x = Tensor::<B, 2>::random([samples, 4], Distribution::Default, &device);
//!         let loss = model.forward(x).powi_scalar(2).mean();
//!         let gradients = GradientsParams::from_grads(loss.backward(), &model);
//!         let gradients = worker.mean(gradients, &model, samples)?;
//!         model = optimizer.step(0.1, model, gradients);
//!         last = worker.mean_of(loss.into_scalar().into(), samples)?;
//!     }
//!     Ok::<_, ParallelError>(last)
//! })?;
//! assert_eq!(losses[0], losses[1]);
//! # Ok::<(), ParallelError>(())
//! ```
//!
//! - [`Worker::broadcast`] gives all workers the parameters of the first.
//! - [`Worker::part`] divides the batches of a [`Sampler`](crate::train::Sampler) among the workers.
//! - [`Worker::mean`] is the mean of the gradients of all, weighted by samples: the gradients of one large batch. It is
//!   made once, in the order of the workers, so that all have the same bits.
//! - [`Worker::watch`] exchanges gradients while the backward pass computes the others.
//! - [`Worker::sum`] and [`Worker::mean_of`] add up metrics; [`Worker::is_first`] is for what one worker prints and
//!   saves.
//! - [`SharedRun`] saves the run, and resumes it with the same or another number of workers.
//! - [`Worker::rebalance`] divides batches by the speed of the workers.
//! - [`Worker::agree`] and [`Worker::keep_equal`] find workers that differ.
//!
//! [`Pipeline`] divides a model among devices in place of the batch. [`run_on`] runs a worker on a [`Transport`] of its
//! own, such as that of the package `burn-wgsl-mpi`.
//!
//! Gradients go through the memory of the host, so that GPUs of any vendors and the CPU can work together.

mod board;
mod buckets;
mod error;
#[cfg(feature = "learner")]
mod learner;
mod part;
mod peers;
mod pipeline;
mod replicas;
mod schedule;
mod shared_run;
mod speed;
mod threads;
mod transport;
mod watch;
mod worker;
mod workers;

pub use error::ParallelError;
#[cfg(feature = "learner")]
pub use learner::ParallelStrategy;
pub use part::{Part, Rest};
pub use pipeline::{MicroBatch, Pipeline, PipelineStep};
pub use schedule::Schedule;
pub use shared_run::SharedRun;
pub use transport::{Gathered, Pending, Transport};
pub use worker::Worker;
pub use workers::{Workers, run, run_on};
