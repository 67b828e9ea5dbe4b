//! Converts models to and from the bytes of a model file, with checks.
//!
//! This module uses no file system, so the web pages read and write the same files.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::serde::Deserialize;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use crate::model::Model;

type Format = NamedMpkBytesRecorder<FullPrecisionSettings>;

/// Returns the bytes of a model file.
///
/// # Errors
///
/// Returns an error if the model cannot be encoded.
pub fn to_bytes<B: Backend>(model: Model<B>) -> Result<Vec<u8>> {
    Ok(Recorder::<B>::record(&Format::new(), model.into_record(), ())?)
}

/// Returns `model` with the weights of a model file. Errors name the file as `file`.
///
/// # Errors
///
/// Returns an error if the bytes are not a model file, or if its layers and shapes differ from
/// those of `model`.
pub fn from_bytes<B: Backend>(
    model: Model<B>,
    file: &str,
    bytes: Vec<u8>,
    device: &B::Device,
) -> Result<Model<B>> {
    let decode_error =
        || format!("{file} is not a model of the digits network, or it is cut short");
    let record: SavedRecord =
        Recorder::<B>::load_item(&Format::new(), &mut { bytes }).with_context(decode_error)?;
    let weights = checked_weights(&model, record).with_context(|| format!("model file {file}"))?;
    Ok(model.map(&mut WeightLoader::<B> { path: Vec::new(), weights, device }))
}

/// Returns a checksum (CRC-32) of the bits of all float parameters, in the order of the model's fields. Models trained
/// by the same steps on the same device have the same.
pub fn fingerprint<B: Backend>(model: &impl Module<B>) -> u32 {
    let mut fingerprint = Fingerprint(flate2::Crc::new());
    model.visit(&mut fingerprint);
    fingerprint.0.sum()
}

struct Fingerprint(flate2::Crc);

impl<B: Backend> ModuleVisitor<B> for Fingerprint {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.update(&param.val().into_data().bytes);
    }
}

/// The part of a saved record that is checked. Burn itself accepts weights of any shape.
#[derive(Deserialize)]
#[serde(crate = "burn::serde")]
struct SavedRecord {
    item: BTreeMap<String, Option<Layer>>,
}

#[derive(Deserialize)]
#[serde(crate = "burn::serde")]
struct Layer {
    weight: Option<Weight>,
    bias: Option<Weight>,
}

#[derive(Deserialize)]
#[serde(crate = "burn::serde")]
struct Weight {
    param: TensorData,
}

/// Returns the weights of a file by name, after checking that names and shapes are those of the
/// model.
fn checked_weights<B: Backend>(
    model: &Model<B>,
    record: SavedRecord,
) -> Result<BTreeMap<String, TensorData>> {
    let mut weights = BTreeMap::new();
    for (name, layer) in record.item {
        let Some(layer) = layer else { continue };
        for (part, weight) in [("weight", layer.weight), ("bias", layer.bias)] {
            if let Some(weight) = weight {
                weights.insert(format!("{name}.{part}"), weight.param);
            }
        }
    }
    let mut expected = ShapeCollector::default();
    model.visit(&mut expected);
    for (name, shape) in &expected.shapes {
        let Some(data) = weights.get(name) else {
            bail!("the file has no layer {name}; expected one of shape {shape:?}");
        };
        let file_shape = data.shape.to_vec();
        if file_shape != *shape {
            bail!("layer {name} has shape {file_shape:?} in the file; expected {shape:?}");
        }
        if !data.dtype.is_float() {
            bail!("layer {name} has {:?} elements; expected floats", data.dtype);
        }
        if data.bytes.len() != shape.iter().product::<usize>() * data.dtype.size() {
            bail!("the number of elements of layer {name} does not match its shape {shape:?}");
        }
    }
    match weights.keys().find(|name| expected.shapes.iter().all(|(known, _)| known != *name)) {
        Some(name) => bail!("the file has an unknown layer {name}"),
        None => Ok(weights),
    }
}

/// Collects the name and shape of every weight of a module.
#[derive(Default)]
struct ShapeCollector {
    /// The path of the current module.
    path: Vec<String>,
    /// Names and shapes, in visiting order.
    shapes: Vec<(String, Vec<usize>)>,
}

impl<B: Backend> ModuleVisitor<B> for ShapeCollector {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.shapes.push((self.path.join("."), param.lazy_shape().to_vec()));
    }

    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }
}

/// Replaces the weights of a module by loaded ones.
struct WeightLoader<'a, B: Backend> {
    /// The path of the current module.
    path: Vec<String>,
    /// The loaded weights by name.
    weights: BTreeMap<String, TensorData>,
    device: &'a B::Device,
}

impl<B: Backend> ModuleMapper<B> for WeightLoader<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(data) = self.weights.remove(&self.path.join(".")) else {
            return param;
        };
        let (id, old, mapper) = param.consume();
        let new = Tensor::from_data(data, self.device).set_require_grad(old.is_require_grad());
        Param::from_mapped_value(id, new, mapper)
    }

    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::conv::{Conv2d, Conv2dConfig};
    use burn_wgsl::{Wgsl, WgslDevice};

    use super::*;
    use crate::model::SIDE;

    /// A model that has only the first layer, with any number of channels.
    #[derive(Module, Debug)]
    struct FirstLayer<B: Backend> {
        conv1: Conv2d<B>,
    }

    #[test]
    fn model_files_round_trip_and_invalid_ones_are_rejected() {
        check_model_files::<Wgsl>(&WgslDevice::Cpu);
    }

    fn check_model_files<B: Backend>(device: &B::Device) {
        let load =
            |bytes: &[u8]| from_bytes(Model::<B>::new(device), "some.mpk", bytes.to_vec(), device);
        let error = |bytes: &[u8]| format!("{:#}", load(bytes).unwrap_err());
        let logits = |model: &Model<B>| {
            let image =
                Tensor::arange(0..(SIDE * SIDE) as i64, device).float().reshape([1, 1, SIDE, SIDE])
                    / 64.0;
            model.forward(image).into_data().to_vec::<f32>().unwrap()
        };

        let model = Model::new(device);
        assert_ne!(logits(&model), logits(&Model::new(device)));
        let saved = to_bytes::<B>(model.clone()).unwrap();
        assert_eq!(logits(&load(&saved).unwrap()), logits(&model));
        let truncated = error(&saved[..saved.len() / 2]);
        assert!(truncated.contains("or it is cut short"), "{truncated}");
        let invalid = error(b"no model");
        assert!(invalid.contains("some.mpk is not a model"), "{invalid}");

        for (channels, expected) in [
            (16, "layer conv1.weight has shape [16, 1, 3, 3] in the file; expected [32, 1, 3, 3]"),
            (32, "the file has no layer conv2.weight"),
        ] {
            let first_layer =
                FirstLayer::<B> { conv1: Conv2dConfig::new([1, channels], [3, 3]).init(device) };
            let bytes = Recorder::<B>::record(&Format::new(), first_layer.into_record(), ());
            let error = error(&bytes.unwrap());
            assert!(error.contains(expected), "{error}");
        }
    }
}
