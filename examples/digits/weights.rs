//! The model as the bytes of a file, checked before they are used.
//!
//! Nothing here knows a file system, so that pages in a browser read and write the same files.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::serde::Deserialize;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use crate::model::Model;

type Format = NamedMpkBytesRecorder<FullPrecisionSettings>;

/// The model as the bytes of a file.
pub fn to_bytes<B: Backend>(model: Model<B>) -> Result<Vec<u8>> {
    Ok(Recorder::<B>::record(&Format::new(), model.into_record(), ())?)
}

/// Puts the weights of a file into `model`, once each of them is known to be there and to fit. `file` is what errors call it.
pub fn from_bytes<B: Backend>(
    model: Model<B>,
    file: &str,
    bytes: Vec<u8>,
    device: &B::Device,
) -> Result<Model<B>> {
    let foreign = || format!("{file} is not a model that this program saved, or it is cut");
    let contents: Contents =
        Recorder::<B>::load_item(&Format::new(), &mut { bytes }).with_context(foreign)?;
    let weights = fitting(&model, contents).with_context(|| format!("model file {file}"))?;
    Ok(model.map(&mut Put::<B> { names: Vec::new(), weights, device }))
}

/// The part of a saved record that has to be checked: Burn itself takes weights of any shape.
#[derive(Deserialize)]
#[serde(crate = "burn::serde")]
struct Contents {
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

/// The weights of a file by name, of which the model needs all and knows all.
fn fitting<B: Backend>(model: &Model<B>, file: Contents) -> Result<BTreeMap<String, TensorData>> {
    let mut there = BTreeMap::new();
    for (name, layer) in file.item {
        let Some(layer) = layer else { continue };
        for (part, weight) in [("weight", layer.weight), ("bias", layer.bias)] {
            if let Some(weight) = weight {
                there.insert(format!("{name}.{part}"), weight.param);
            }
        }
    }
    let mut wanted = Shapes::default();
    model.visit(&mut wanted);
    for (name, shape) in &wanted.found {
        let Some(data) = there.get(name) else {
            bail!("it has no layer {name}; this program needs one of shape {shape:?}");
        };
        let in_file = data.shape.to_vec();
        if in_file != *shape {
            bail!("layer {name} has shape {in_file:?} there, but {shape:?} in this program");
        }
        if data.bytes.len() != shape.iter().product::<usize>() * data.dtype.size() {
            bail!("layer {name} holds fewer or more numbers than its shape {shape:?} says");
        }
    }
    match there.keys().find(|name| wanted.found.iter().all(|(wanted, _)| wanted != *name)) {
        Some(name) => bail!("it has a layer {name}, which this program does not know"),
        None => Ok(there),
    }
}

/// Collects the name and shape of every weight of a module.
#[derive(Default)]
struct Shapes {
    names: Vec<String>,
    found: Vec<(String, Vec<usize>)>,
}

impl<B: Backend> ModuleVisitor<B> for Shapes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.found.push((self.names.join("."), param.lazy_shape().to_vec()));
    }

    fn enter_module(&mut self, name: &str, _container: &str) {
        self.names.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.names.pop();
    }
}

/// Puts weights in the place of a module's own.
struct Put<'a, B: Backend> {
    names: Vec<String>,
    weights: BTreeMap<String, TensorData>,
    device: &'a B::Device,
}

impl<B: Backend> ModuleMapper<B> for Put<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(data) = self.weights.remove(&self.names.join(".")) else {
            return param;
        };
        let (id, old, mapper) = param.consume();
        let new = Tensor::from_data(data, self.device).set_require_grad(old.is_require_grad());
        Param::from_mapped_value(id, new, mapper)
    }

    fn enter_module(&mut self, name: &str, _container: &str) {
        self.names.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.names.pop();
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::conv::{Conv2d, Conv2dConfig};
    use burn_wgsl::{Wgsl, WgslDevice};

    use super::*;
    use crate::model::SIDE;

    /// A model that has only the first layer, of any size.
    #[derive(Module, Debug)]
    struct Other<B: Backend> {
        conv1: Conv2d<B>,
    }

    #[test]
    fn a_model_survives_its_file_and_a_wrong_file_says_what_is_wrong() {
        files_of_models::<Wgsl>(&WgslDevice::Cpu);
    }

    fn files_of_models<B: Backend>(device: &B::Device) {
        let load =
            |bytes: &[u8]| from_bytes(Model::<B>::new(device), "some.mpk", bytes.to_vec(), device);
        let error = |bytes: &[u8]| format!("{:#}", load(bytes).unwrap_err());
        let scores = |model: &Model<B>| {
            let image =
                Tensor::arange(0..(SIDE * SIDE) as i64, device).float().reshape([1, 1, SIDE, SIDE])
                    / 64.0;
            model.forward(image).into_data().to_vec::<f32>().unwrap()
        };

        let model = Model::new(device);
        assert_ne!(scores(&model), scores(&Model::new(device)));
        let saved = to_bytes::<B>(model.clone()).unwrap();
        assert_eq!(scores(&load(&saved).unwrap()), scores(&model));
        let cut = error(&saved[..saved.len() / 2]);
        assert!(cut.contains("or it is cut"), "{cut}");
        let foreign = error(b"no model");
        assert!(foreign.contains("some.mpk is not a model"), "{foreign}");

        for (channels, expected) in [
            (16, "layer conv1.weight has shape [16, 1, 3, 3] there, but [32, 1, 3, 3]"),
            (32, "it has no layer conv2.weight"),
        ] {
            let other = Other::<B> { conv1: Conv2dConfig::new([1, channels], [3, 3]).init(device) };
            let bytes = Recorder::<B>::record(&Format::new(), other.into_record(), ());
            let error = error(&bytes.unwrap());
            assert!(error.contains(expected), "{error}");
        }
    }
}
