//! Why a batch cannot be loaded, or a checkpoint not be saved or read.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
        "loading the items {items:?} of epoch {epoch} has not ended after {timeout:?}; a worker waits for \
         something, such as a file on a network, or the timeout is too short"
    )]
    TimedOut {
        /// The items of the batch.
        items: Vec<usize>,
        /// The epoch.
        epoch: u64,
        /// The timeout.
        timeout: Duration,
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
    /// A sampler is made for another number of items.
    #[error("the sampler has weights or lengths of {items} items, but the dataset has {len}")]
    OtherSampler {
        /// The items of the sampler.
        items: usize,
        /// The length of the dataset.
        len: usize,
    },
    /// A position is that of other data.
    #[error(
        "the position is one in a dataset of {} items in batches of {}, but the loader has {} in batches of {}; resume \
         with the same data and batch size",
        found.0, found.1, expected.0, expected.1
    )]
    OtherData {
        /// The items of the dataset and of a batch of the loader.
        expected: (usize, usize),
        /// Those of the position.
        found: (usize, usize),
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

/// An error of [`Checkpoints`](super::Checkpoints) or of a [`State`](super::State).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file system refused something.
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        /// What was refused.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// Another process, or another value in this one, saves to the folder.
    #[error("{} is in use by another run; wait for its end, or use another folder [BW47]", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A run is to be resumed, but there are no checkpoints.
    #[error("there is no checkpoint in {}; start without resuming, or use the folder of the run", folder.display())]
    NothingToResume {
        /// The folder.
        folder: PathBuf,
    },
    /// A run is to start, but the folder has checkpoints of another.
    #[error("{} has checkpoints of a run; resume it, or use another folder", folder.display())]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// A run is resumed with other settings.
    #[error(
        "the run was saved with `{name}` = {saved}, and is resumed with {found}; resume it with the same [BW45]"
    )]
    OtherSetting {
        /// The name of the part.
        name: String,
        /// Its value in the checkpoint.
        saved: String,
        /// Its value now.
        found: String,
    },
    /// A file of a checkpoint was cut or altered.
    #[error("the checkpoint is damaged: {}: {reason} [BW46]", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A checkpoint has another format.
    #[error(
        "{} has the format {version}, which this version of burn-wgsl does not read; use the version that wrote it \
         [BW46]",
        path.display()
    )]
    Version {
        /// The manifest.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
    /// A checkpoint has no part of a name.
    #[error("the checkpoint has no part `{name}`; its parts are {parts:?} [BW45]")]
    NoPart {
        /// The name.
        name: String,
        /// The names of its parts.
        parts: Vec<String>,
    },
    /// Two parts have the same name.
    #[error(
        "there are two parts `{name}`; give each its own name (`random` is that of the random numbers of a run)"
    )]
    Repeated {
        /// The name.
        name: String,
    },
    /// A run was opened without a device.
    #[error("the run has no device; open it with the devices that it trains on")]
    NoDevice,
    /// A part is that of something else, or cannot be serialised.
    #[error("the part `{name}` does not fit: {reason} [BW46]")]
    Unusable {
        /// The name of the part.
        name: String,
        /// What does not fit.
        reason: String,
    },
    /// A name of a part is not one of a file on every system.
    #[error("`{name}` is no name of a part; use up to 64 lowercase letters, digits, `-` and `_`")]
    Name {
        /// The name.
        name: String,
    },
}

impl CheckpointError {
    /// Returns whether a file is missing because its folder is.
    pub(super) fn is_of_missing_folder(&self) -> bool {
        let Self::Damaged { path, .. } = self else { return false };
        path.parent().is_some_and(|folder| !folder.exists())
    }

    pub(super) fn io(action: &'static str, path: &Path, error: &std::io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), reason: error.to_string() }
    }

    pub(super) fn damaged(path: &Path, reason: &str) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.to_owned() }
    }

    pub(super) fn unusable(name: &str, reason: &dyn Display) -> Self {
        Self::Unusable { name: name.to_owned(), reason: reason.to_string() }
    }
}
