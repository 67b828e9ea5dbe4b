//! The tensors of a module as PyTorch has them: its names, its layouts.
//!
//! This list is what a file is compared with, and what is saved.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use burn::module::ParamId;
use burn::tensor::TensorData;
use burn::tensor::backend::Backend;
use burn_store::{
    BurnToPyTorchAdapter, KeyRemapper, ModuleSnapshot, PyTorchToBurnAdapter, TensorSnapshot,
};
use safetensors::tensor::{Dtype, TensorView};
use thiserror::Error;

use crate::file::Tensors;
use crate::models::Imported;

/// Why weights cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file does not have the tensors of the model.
    #[error("the file does not have the tensors of this model:\n{0}")]
    Mismatch(Mismatch),
    /// The values of a tensor cannot be read.
    #[error("`{name}`: {cause}")]
    Values {
        /// The tensor.
        name: String,
        /// The cause.
        cause: String,
    },
    /// The module did not take all tensors.
    #[error("the module does not take all tensors: {0}")]
    Module(String),
}

/// The differences between a file and a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mismatch {
    /// Tensors of the model that the file lacks.
    pub missing: Vec<String>,
    /// Tensors of the file that the model lacks.
    pub unknown: Vec<String>,
    /// Tensors of other shapes: that of the model, and that of the file.
    pub shapes: Vec<(String, Vec<usize>, Vec<usize>)>,
}

impl Mismatch {
    fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unknown.is_empty() && self.shapes.is_empty()
    }
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let missing = self.missing.iter().map(|name| format!("`{name}` is missing"));
        let unknown = self.unknown.iter().map(|name| format!("`{name}` is not of this model"));
        let shapes = self
            .shapes
            .iter()
            .map(|(name, expected, found)| format!("`{name}` is {found:?}, not {expected:?}"));
        let lines: Vec<String> = missing.chain(unknown).chain(shapes).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// A tensor as PyTorch has it. Several of the module may be parts of one, along its first axis.
struct Entry {
    shape: Vec<usize>,
    /// With the path in the module, but the layout of PyTorch.
    parts: Vec<TensorSnapshot>,
}

impl Entry {
    /// Returns the rows of each part.
    fn rows(&self) -> impl Iterator<Item = (&TensorSnapshot, Range<usize>)> {
        self.parts.iter().scan(0, |end, part| {
            let start = *end;
            *end += part.shape[0];
            Some((part, start..*end))
        })
    }
}

/// Returns the tensors of a module under the names that PyTorch gives them.
fn entries<B: Backend, M: Imported<B>>(module: &M) -> BTreeMap<String, Entry> {
    let names = KeyRemapper::from_pattern_iter(M::NAMES.iter().copied());
    let names = names.expect("the patterns of a model are valid");
    let snapshots = module.collect(None, Some(Box::new(BurnToPyTorchAdapter)), true);
    let (_, renamed) = names.remap(snapshots.clone());
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    for ((name, _), part) in renamed.into_iter().zip(snapshots) {
        let shape = part.shape.to_vec();
        match entries.get_mut(&name) {
            Some(entry) => {
                entry.shape[0] += shape[0];
                entry.parts.push(part);
            }
            None => {
                entries.insert(name, Entry { shape, parts: vec![part] });
            }
        }
    }
    entries
}

/// Returns how a file differs from a model.
fn compare(entries: &BTreeMap<String, Entry>, tensors: &Tensors) -> Mismatch {
    let mut mismatch = Mismatch::default();
    for (name, Entry { shape, .. }) in entries {
        match tensors.get(name).map(|found| found.shape.to_vec()) {
            None => mismatch.missing.push(name.clone()),
            Some(found) if found != *shape => {
                mismatch.shapes.push((name.clone(), shape.clone(), found));
            }
            Some(_) => {}
        }
    }
    // PyTorch counts the batches that a norm has seen. Burn does not.
    let is_unknown =
        |name: &&String| !entries.contains_key(*name) && !name.ends_with(".num_batches_tracked");
    mismatch.unknown = tensors.keys().filter(is_unknown).cloned().collect();
    mismatch
}

/// Loads the weights of a module. Values keep the type that the module has.
///
/// # Errors
///
/// Returns an error if tensors are missing, not known or of other shapes, all of which it lists, or if values cannot be
/// read. The module may then have some of the weights.
pub fn load<B: Backend, M: Imported<B>>(
    module: &mut M,
    tensors: &Tensors,
) -> Result<(), LoadError> {
    let entries = entries(module);
    let mismatch = compare(&entries, tensors);
    if !mismatch.is_empty() {
        return Err(LoadError::Mismatch(mismatch));
    }
    let mut snapshots = Vec::new();
    for (name, entry) in &entries {
        let failed = |cause: String| LoadError::Values { name: name.clone(), cause };
        let data = tensors[name].to_data().map_err(|cause| failed(cause.to_string()))?;
        if data.shape.to_vec() != entry.shape {
            let (found, expected) = (data.shape, &entry.shape);
            return Err(failed(format!("the values are of the shape {found:?}, not {expected:?}")));
        }
        if !data.dtype.is_float() {
            return Err(failed(format!("the values are of the type {:?}, no floats", data.dtype)));
        }
        for (part, rows) in entry.rows() {
            let data = data.clone().convert_dtype(part.dtype);
            let row = data.as_bytes().len() / entry.shape[0];
            let bytes = data.as_bytes()[rows.start * row..rows.end * row].to_vec();
            let data = TensorData::from_bytes_vec(bytes, part.shape.clone(), part.dtype);
            let path = part.path_stack.clone().unwrap_or_default();
            snapshots.push(TensorSnapshot::from_data(data, path, Vec::new(), ParamId::new()));
        }
    }
    let result = module.apply(snapshots, None, Some(Box::new(PyTorchToBurnAdapter)), true);
    let errors = result.errors.iter().map(ToString::to_string);
    let missing = result.missing.iter().map(|(name, _)| format!("{name} is missing"));
    let problems: Vec<String> = errors.chain(missing).collect();
    if problems.is_empty() { Ok(()) } else { Err(LoadError::Module(problems.join("; "))) }
}

/// Why weights cannot be saved.
#[derive(Debug, Error)]
pub enum SaveError {
    /// The values cannot be read from the device.
    #[error("the device failed: {0}")]
    Device(#[from] burn_store::TensorSnapshotError),
    /// The values have a type that is not saved here.
    #[error("`{0}` is not f32")]
    Type(String),
    /// The file cannot be written.
    #[error("the weights cannot be written: {0}")]
    Write(#[from] safetensors::SafeTensorError),
}

/// Returns the weights of a module as a file of safetensors, with the names and layouts of PyTorch.
///
/// # Errors
///
/// Returns an error if the device fails, or a tensor is not of f32.
pub fn to_bytes<B: Backend, M: Imported<B>>(module: &M) -> Result<Vec<u8>, SaveError> {
    let mut tensors = Vec::new();
    for (name, entry) in entries(module) {
        let mut bytes = Vec::new();
        for part in &entry.parts {
            let data = part.to_data()?;
            if data.dtype != burn::tensor::DType::F32 {
                return Err(SaveError::Type(name));
            }
            bytes.extend_from_slice(data.as_bytes());
        }
        tensors.push((name, entry.shape, bytes));
    }
    let views: Result<Vec<_>, safetensors::SafeTensorError> = tensors
        .iter()
        .map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)))
        .collect();
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    Ok(safetensors::serialize(views?, Some(metadata))?)
}
