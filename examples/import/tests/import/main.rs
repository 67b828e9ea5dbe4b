//! Models from the files of `fixtures/`, beside what PyTorch computes.

mod files;
mod outputs;

use std::path::PathBuf;

use burn_store::KeyRemapper;
use import::file::{self, FileError, Tensors};

/// Returns the path of a fixture.
fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// Reads a file without other names.
fn read(path: &std::path::Path) -> Result<Tensors, FileError> {
    file::read(path, &KeyRemapper::new())
}
