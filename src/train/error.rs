//! Why a batch cannot be loaded.

use thiserror::Error;

/// An error of a [`Loader`](super::Loader).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoaderError {
    /// The batch size is 0.
    #[error("a batch of 0 items cannot be loaded; choose a batch size of at least 1")]
    BatchOfNothing,
    /// The dataset has no items.
    #[error("the dataset is empty; check its folder or file")]
    EmptyDataset,
    /// The dataset returned no item for an index below its length.
    #[error("the dataset has no item {item}, but says that it has {len} items")]
    NoItem {
        /// The index.
        item: usize,
        /// The length of the dataset.
        len: usize,
    },
    /// The dataset or the batcher panicked.
    #[error("loading the items {items:?} of epoch {epoch} panicked: {message}")]
    Panicked {
        /// The items of the batch.
        items: Vec<usize>,
        /// The epoch.
        epoch: u64,
        /// The message of the panic.
        message: String,
    },
    /// A batch took longer than [`LoaderConfig::timeout`](super::LoaderConfig::timeout).
    #[error(
        "loading the items {items:?} of epoch {epoch} has not ended after {seconds} seconds; a worker waits for \
         something, such as a file on a network, or the timeout is too short"
    )]
    TimedOut {
        /// The items of the batch.
        items: Vec<usize>,
        /// The epoch.
        epoch: u64,
        /// The timeout.
        seconds: u64,
    },
    /// A position is that of another order of items.
    #[error(
        "the position belongs to an order with the seed {found}, but the sampler has the seed {expected}; create the \
         sampler with the seed of the run that is resumed"
    )]
    OtherSeed {
        /// The seed of the sampler.
        expected: u64,
        /// The seed of the position.
        found: u64,
    },
    /// A position is beyond the end of an epoch.
    #[error(
        "the position is after {found} items, but an epoch has {items}; the run that is resumed had other data"
    )]
    BeyondEnd {
        /// The items of an epoch.
        items: usize,
        /// The items of the position.
        found: usize,
    },
    /// The system starts no more threads.
    #[error("a worker could not be started: {reason}; use fewer workers")]
    NoThread {
        /// The system's reason.
        reason: String,
    },
}
