//! What a checkpoint holds.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::module::{Module, ModuleVisitor, Param};
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Record, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::CheckpointError;
use crate::runtime::panic_message;

type InMemory = NamedMpkBytesRecorder<FullPrecisionSettings>;

/// The state of a run as named parts: modules, records of optimizers and schedulers, and plain values, such as a
/// [`Position`](super::Position).
///
/// As Burn's recorders do, parts store floats as f32 and integers as i32: these and smaller types keep their values,
/// and are read as the device's default types.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub(crate) parts: BTreeMap<String, Vec<u8>>,
}

impl State {
    /// Creates a state without parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a module: reads its parameters back, and waits for the device.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not one of a file or is there already, or if the module cannot be recorded, such
    /// as for a lost device.
    pub fn set_module<B: Backend>(
        &mut self,
        name: &str,
        module: &impl Module<B>,
    ) -> Result<(), CheckpointError> {
        caught(name, || {
            create_parameters(module);
            Ok(())
        })?;
        self.set_record(name, module.clone().into_record())
    }

    /// Adds a record, such as `optimizer.to_record()`: reads its tensors back, and waits for the device.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not one of a file or is there already, or if the record cannot be serialised,
    /// such as for a lost device.
    pub fn set_record<B: Backend>(
        &mut self,
        name: &str,
        record: impl Record<B>,
    ) -> Result<(), CheckpointError> {
        let bytes = caught(name, || {
            let bytes = InMemory::default().record(record, ());
            bytes.map_err(|error| CheckpointError::unusable(name, &error))
        })?;
        self.set(name, bytes)
    }

    /// Adds a value.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not one of a file or is there already, or if the value cannot be serialised.
    pub fn set_value(&mut self, name: &str, value: &impl Serialize) -> Result<(), CheckpointError> {
        // JSON would lose infinities, NaN and some bits of f64.
        let bytes = rmp_serde::to_vec_named(value);
        self.set(name, bytes.map_err(|error| CheckpointError::unusable(name, &error))?)
    }

    /// Returns a module with the parameters of a part.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such part, or if it is that of another module.
    pub fn module<B: Backend, M: Module<B>>(
        &self,
        name: &str,
        module: M,
        device: &B::Device,
    ) -> Result<M, CheckpointError> {
        let expected = shapes(&module);
        let record = self.record(name, device)?;
        let loaded = caught(name, || Ok(module.load_record(record)))?;
        let found = shapes(&loaded);
        match expected.iter().zip(&found).find(|(expected, found)| expected != found) {
            None if expected.len() == found.len() => Ok(loaded),
            None => Err(CheckpointError::unusable(
                name,
                &format!("it has {} parameters, and the module {}", found.len(), expected.len()),
            )),
            Some(((path, expected), (_, found))) => Err(CheckpointError::unusable(
                name,
                &format!(
                    "`{path}` has the shape {found:?}, and that of the module has {expected:?}"
                ),
            )),
        }
    }

    /// Returns the record of a part.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such part, or if it is another record.
    pub fn record<B: Backend, R: Record<B>>(
        &self,
        name: &str,
        device: &B::Device,
    ) -> Result<R, CheckpointError> {
        let bytes = self.get(name)?.to_vec();
        caught(name, || {
            let record = InMemory::default().load(bytes, device);
            record.map_err(|error| CheckpointError::unusable(name, &error))
        })
    }

    /// Returns the value of a part.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such part, or if it is another value.
    pub fn value<T: DeserializeOwned>(&self, name: &str) -> Result<T, CheckpointError> {
        let value = rmp_serde::from_slice(self.get(name)?);
        value.map_err(|error| CheckpointError::unusable(name, &error))
    }

    fn set(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), CheckpointError> {
        check_name(name)?;
        if self.parts.contains_key(name) {
            return Err(CheckpointError::Repeated { name: name.to_owned() });
        }
        self.parts.insert(name.to_owned(), bytes);
        Ok(())
    }

    fn get(&self, name: &str) -> Result<&[u8], CheckpointError> {
        let missing = || CheckpointError::NoPart {
            name: name.to_owned(),
            parts: self.parts.keys().cloned().collect(),
        };
        self.parts.get(name).map(Vec::as_slice).ok_or_else(missing)
    }
}

/// Burn panics where it records tensors of a lost device, and at the record of a module with another number of layers,
/// another variant of an enum or other ranks.
fn caught<T>(
    name: &str,
    work: impl FnOnce() -> Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(CheckpointError::unusable(name, &panic_message(&*panic))))
}

/// Checks that a part's name is one of a file on every system, and below the folder of its checkpoint.
pub(super) fn check_name(name: &str) -> Result<(), CheckpointError> {
    // Some systems do not distinguish upper and lower case.
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    match name.len() {
        1..=64 if name.chars().all(is_plain) => Ok(()),
        _ => Err(CheckpointError::Name { name: name.to_owned() }),
    }
}

/// Creates the values of parameters that were not used yet. A clone of a module would have random values of its own.
pub(crate) fn create_parameters<B: Backend>(module: &impl Module<B>) {
    module.visit(&mut Created);
}

struct Created;

impl<B: Backend> ModuleVisitor<B> for Created {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        param.val();
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        param.val();
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        param.val();
    }
}

/// Returns the path and the shape of each parameter. Parameters that have no values yet do not get any.
fn shapes<B: Backend>(module: &impl Module<B>) -> Vec<(String, Vec<usize>)> {
    let mut shapes = Shapes::default();
    module.visit(&mut shapes);
    shapes.found
}

#[derive(Default)]
struct Shapes {
    path: Vec<String>,
    found: Vec<(String, Vec<usize>)>,
}

impl Shapes {
    fn add(&mut self, shape: &[usize]) {
        self.found.push((self.path.join("."), shape.to_vec()));
    }
}

impl<B: Backend> ModuleVisitor<B> for Shapes {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.add(param.lazy_shape().as_slice());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add(param.lazy_shape().as_slice());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add(param.lazy_shape().as_slice());
    }
}
