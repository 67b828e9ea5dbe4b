//! Files of weights.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use burn_store::{KeyRemapper, ModuleStore, SafetensorsStore, TensorSnapshot};

use crate::pytorch;

/// A file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {cause}", .path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub cause: String,
}

/// The tensors of a file. Their values are read when they are needed.
pub type Tensors = BTreeMap<String, TensorSnapshot>;

/// Returns the tensors of a file that PyTorch saved (`torch.save(model.state_dict(), ...)`), or of a safetensors file,
/// with their names replaced. The contents tell which it is. No code that a file may hold is run.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is neither, or two tensors get the same name.
pub fn read(path: &Path, names: &KeyRemapper) -> Result<Tensors, FileError> {
    let error = |cause: String| FileError { path: path.to_owned(), cause };
    let tensors = read_tensors(path).map_err(|cause| error(cause.to_string()))?;
    let (tensors, renamed) = names.remap(tensors);
    let mut found = Tensors::new();
    let mut originals = BTreeMap::new();
    for ((name, original), tensor) in renamed.into_iter().zip(tensors) {
        if let Some(other) = originals.insert(name.clone(), original.clone()) {
            return Err(error(format!("`{other}` and `{original}` are both named `{name}`")));
        }
        found.insert(name, tensor);
    }
    Ok(found)
}

fn read_tensors(path: &Path) -> Result<Vec<TensorSnapshot>, Box<dyn Error>> {
    let mut file = File::open(path)?;
    let mut start = Vec::new();
    file.by_ref().take(9).read_to_end(&mut start)?;
    // A safetensors file begins with the length of a header in 8 bytes, and the header as JSON.
    if start.get(8) == Some(&b'{') {
        let mut store = SafetensorsStore::from_file(path);
        return Ok(store.get_all_snapshots()?.values().cloned().collect());
    }
    if start.starts_with(b"PK") {
        file.rewind()?;
        return Ok(pytorch::read(file)?);
    }
    Err(match start.first() {
        Some(0x80) => "it has the format of PyTorch before 1.6: load it there, and save it again",
        _ => "it is neither a PyTorch nor a safetensors file",
    }
    .into())
}
