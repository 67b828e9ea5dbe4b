//! Files: results that appear whole or not at all, and models that are checked before they are used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use burn::module::{Module, ModuleVisitor, Param};
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::serde::Deserialize;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use crate::model::Model;

type Format = NamedMpkBytesRecorder<FullPrecisionSettings>;

/// A file to be written later: beside its place first, then renamed into it.
pub struct Output {
    path: PathBuf,
    beside: PathBuf,
}

impl Output {
    /// Makes sure, before hours of work, that the file can be written. `option` is the one that asked for it.
    pub fn new(option: &str, path: &Path) -> Result<Self> {
        let refuse = |why: String| anyhow!("{option} {}: {why}", path.display());
        let name = path.file_name().ok_or_else(|| refuse("expected the name of a file".into()))?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let meta = folder.metadata().map_err(|error| refuse(format!("the folder {}: {error}", folder.display())))?;
        // On Windows the flag means something else on folders. Elsewhere it is honoured even where root could write.
        if cfg!(not(windows)) && meta.permissions().readonly() {
            return Err(refuse(format!("the folder {} is read-only", folder.display())));
        }
        if let Ok(old) = path.metadata() {
            if !old.is_file() {
                return Err(refuse("there is something else than a file".into()));
            }
            if old.permissions().readonly() {
                return Err(refuse("the file is read-only".into()));
            }
        }
        let mut beside = name.to_os_string();
        beside.push(format!(".partial-{}", std::process::id()));
        let beside = folder.join(beside);
        std::fs::write(&beside, [])
            .and_then(|()| std::fs::remove_file(&beside))
            .map_err(|error| refuse(format!("cannot write in the folder {}: {error}", folder.display())))?;
        Ok(Self { path: path.to_path_buf(), beside })
    }

    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let done = std::fs::write(&self.beside, bytes).and_then(|()| std::fs::rename(&self.beside, &self.path));
        if done.is_err() {
            // Nothing half-written stays. The first error is the one worth telling.
            let _ = std::fs::remove_file(&self.beside);
        }
        done.with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The model as the bytes of a file.
pub fn to_bytes<B: Backend>(model: Model<B>) -> Result<Vec<u8>> {
    Ok(Recorder::<B>::record(&Format::new(), model.into_record(), ())?)
}

/// Puts the weights of a file into `model`, once each of them is known to be there and to fit.
pub fn load<B: Backend>(model: Model<B>, path: &Path, device: &B::Device) -> Result<Model<B>> {
    let file = path.display();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the model file {file}"))?;
    let read = || -> Result<Contents> { Ok(Recorder::<B>::load_item(&Format::new(), &mut bytes.clone())?) };
    let foreign = || format!("{file} is not a model that this program saved, or it is cut");
    check(&model, &read().with_context(foreign)?).with_context(|| format!("model file {file}"))?;
    let record = Recorder::<B>::load(&Format::new(), bytes, device).with_context(foreign)?;
    Ok(model.load_record(record))
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

fn check<B: Backend>(model: &Model<B>, file: &Contents) -> Result<()> {
    let mut found = BTreeMap::new();
    for (name, layer) in &file.item {
        let Some(layer) = layer else { continue };
        for (part, weight) in [("weight", &layer.weight), ("bias", &layer.bias)] {
            if let Some(weight) = weight {
                found.insert(format!("{name}.{part}"), &weight.param);
            }
        }
    }
    let mut wanted = Shapes::default();
    model.visit(&mut wanted);
    for (name, shape) in wanted.found {
        let Some(data) = found.remove(&name) else {
            bail!("it has no layer {name}; this program needs one of shape {shape:?}");
        };
        let in_file = data.shape.to_vec();
        if in_file != shape {
            bail!("layer {name} has shape {in_file:?} there, but {shape:?} in this program");
        }
        if data.bytes.len() != shape.iter().product::<usize>() * data.dtype.size() {
            bail!("layer {name} holds fewer or more numbers than its shape {shape:?} says");
        }
    }
    match found.keys().next() {
        Some(name) => bail!("it has a layer {name}, which this program does not know"),
        None => Ok(()),
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

#[cfg(test)]
mod tests {
    use burn::nn::conv::{Conv2d, Conv2dConfig};
    use burn_wgsl::{Wgsl, WgslDevice};

    use super::*;

    /// A model that has only the first layer, of any size.
    #[derive(Module, Debug)]
    struct Other<B: Backend> {
        conv1: Conv2d<B>,
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("digits-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_model_survives_its_file_and_a_wrong_file_says_what_is_wrong() {
        files_of_models::<Wgsl>(&WgslDevice::Cpu);
    }

    fn files_of_models<B: Backend>(device: &B::Device) {
        let folder = folder("models");
        let path = folder.join("model");
        let load = || {
            let loaded = load(Model::<B>::new(device), &path, device);
            loaded.map(|model| to_bytes::<B>(model).unwrap())
        };
        let error = || format!("{:#}", load().unwrap_err());

        let saved = to_bytes::<B>(Model::new(device)).unwrap();
        let output = Output::new("--save", &path).unwrap();
        output.write(&saved).unwrap();
        assert_eq!(load().unwrap(), saved);

        output.write(&saved[..saved.len() / 2]).unwrap();
        assert!(error().contains("or it is cut"), "{}", error());
        output.write(b"no model").unwrap();
        assert!(error().contains("is not a model"), "{}", error());

        for (channels, expected) in [
            (16, "layer conv1.weight has shape [16, 1, 3, 3] there, but [32, 1, 3, 3]"),
            (32, "it has no layer conv2.weight"),
        ] {
            let other = Other::<B> { conv1: Conv2dConfig::new([1, channels], [3, 3]).init(device) };
            let bytes = Recorder::<B>::record(&Format::new(), other.into_record(), ());
            output.write(&bytes.unwrap()).unwrap();
            assert!(error().contains(expected), "{}", error());
        }
        // Only the one file is left: everything written beside it was renamed.
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused_at_once() {
        let folder = folder("places");
        let refused = |path: &Path| match Output::new("--save", path) {
            Ok(_) => panic!("{} was accepted", path.display()),
            Err(error) => format!("{error:#}"),
        };
        let file = folder.join("file");
        std::fs::write(&file, "kept").unwrap();
        let mut permissions = file.metadata().unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&file, permissions).unwrap();
        assert!(refused(&file).contains("the file is read-only"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        assert!(refused(&folder.join("nowhere/file")).contains("the folder"));
        assert!(refused(&folder).contains("something else than a file"));
        assert!(refused(Path::new("/")).contains("the name of a file"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
