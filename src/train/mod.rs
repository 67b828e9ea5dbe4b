//! Parts of a training loop that Burn leaves to the program.
//!
//! - [`Loader`] is a Burn `DataLoader` whose batches come in the order of a [`Sampler`], for any number of workers.
//!   Its position is a value that a program saves and restores.
//! - [`Staging`] is a batch that is put together in memory that the device copies from.
//! - [`MeanGradients`] accumulates the gradients of several batches as those of one large batch.
//! - [`Ema`] keeps an exponential moving average of the weights.
//! - [`Segments`] compute activations again in the backward pass, in place of keeping them.
//! - [`Run`] saves all parts of a run in one call, and resumes it with the same bits. Below it, [`Checkpoints`] saves a
//!   [`State`], which a killed process does not damage.
//! - [`Mean`], [`Accuracy`] and [`Confusion`] are metrics on the device. A [`Readback`] starts now and is taken later.
//! - [`Stop`] ends a loop after a step when a signal asks for it.
//! - [`Advisor`] measures a loop, and says what slows it.
//! - [`BatchSearch`] finds the batch that trains fastest in the memory of a device.
//!
//! All of it also works on the CPU device.

mod advice;
mod batch_size;
mod checkpoints;
pub(crate) mod cut;
mod ema;
mod error;
#[cfg(feature = "learner")]
mod learner;
mod loader;
mod mean;
mod metrics;
mod readback;
mod run;
mod sampler;
mod segments;
mod staging;
mod state;
mod stop;
mod workers;

pub use advice::{Advice, Advisor, LoopReport};
pub use batch_size::{BatchSearch, BatchSize, BatchSizes, InvalidBatchSize, NoBatchFits, Trial};
pub use checkpoints::{Checkpoint, Checkpoints};
pub use ema::Ema;
pub use error::{CheckpointError, LoaderError};
#[cfg(feature = "learner")]
pub use learner::RunStrategy;
pub use loader::{Batches, Loader, LoaderConfig, Position};
pub use mean::MeanGradients;
pub use metrics::{Accuracy, Confusion, ConfusionMatrix, Mean};
pub use readback::{IntoReadback, Readback};
pub use run::{Parts, Run, RunConfig, Saved};
pub use sampler::{Bucketed, Sampler, Sequential, Shuffled, Weighted, item_seed};
pub use segments::{Segments, SegmentsBackward};
pub use staging::{StagedElement, Staging};
pub use state::State;
pub use stop::{Stop, StopError};
