//! Files of weights.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use burn_store::{KeyRemapper, ModuleStore, PytorchStore, SafetensorsStore, TensorSnapshot};
use thiserror::Error;

/// A file cannot be read.
#[derive(Debug, Error)]
#[error("cannot read {}: {cause}", .path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub cause: String,
}

/// The tensors of a file. Their values are read when they are needed.
pub type Tensors = BTreeMap<String, TensorSnapshot>;

/// Returns the tensors of a file that PyTorch saved (`torch.save(model.state_dict(), ...)`), or of a file of
/// safetensors, with their names replaced. The contents tell which it is. No code that a file may hold is run.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or is neither.
pub fn read(path: &Path, names: &KeyRemapper) -> Result<Tensors, FileError> {
    let error = |cause: String| FileError { path: path.to_owned(), cause };
    let mut start = Vec::new();
    let file = File::open(path).map_err(|cause| error(cause.to_string()))?;
    file.take(9).read_to_end(&mut start).map_err(|cause| error(cause.to_string()))?;
    // The length of a header, and the header as JSON.
    let tensors = if start.get(8) == Some(&b'{') {
        let mut store = SafetensorsStore::from_file(path);
        store.get_all_snapshots().cloned().map_err(|cause| cause.to_string())
    } else if start.starts_with(b"PK") || start.starts_with(&[0x80]) {
        let mut store = PytorchStore::from_file(path).map_indices_contiguous(false);
        store.get_all_snapshots().cloned().map_err(|cause| cause.to_string())
    } else {
        Err("it is neither a file of PyTorch nor one of safetensors".to_owned())
    };
    let tensors: Vec<TensorSnapshot> = tensors.map_err(error)?.into_values().collect();
    let (tensors, renamed) = names.remap(tensors);
    Ok(renamed.into_iter().map(|(name, _)| name).zip(tensors).collect())
}
