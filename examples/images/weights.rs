//! Weights from PyTorch and for it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use burn::tensor::backend::Backend;
use burn_store::{
    ApplyError, BurnToPyTorchAdapter, KeyRemapper, ModuleSnapshot, PyTorchToBurnAdapter,
    PytorchStore, SafetensorsStore,
};

use crate::model::Network;

/// The names of torchvision's ResNet-18, and those of this one. Its stages of two blocks are one list here.
const RESNET: [(&str, &str); 8] = [
    ("conv1", "stem.conv.conv"),
    ("bn1", "stem.conv.norm"),
    ("fc", "output"),
    ("BLOCK.conv1", "BLOCK.first.conv"),
    ("BLOCK.bn1", "BLOCK.first.norm"),
    ("BLOCK.conv2", "BLOCK.second.conv"),
    ("BLOCK.bn2", "BLOCK.second.norm"),
    ("BLOCK.downsample", "BLOCK.shortcut"),
];

/// The parts of a shortcut.
const SHORTCUT: [(&str, &str); 2] = [("0", "conv"), ("1", "norm")];

/// Which names are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    Burn,
    Torch,
}

/// Returns the names of a network in the other framework. The names of the small network are the same.
fn names(is_resnet: bool, to: To) -> Result<KeyRemapper> {
    let mut pairs = Vec::new();
    if is_resnet {
        for (torch, burn) in RESNET {
            if !torch.starts_with("BLOCK") {
                pairs.push((torch.to_owned(), burn.to_owned()));
                continue;
            }
            for block in 0..8 {
                let in_torch = format!("layer{}.{}", block / 2 + 1, block % 2);
                let torch = torch.replace("BLOCK", &in_torch);
                let burn = burn.replace("BLOCK", &format!("blocks.{block}"));
                match torch.ends_with("downsample") {
                    true => pairs.extend(SHORTCUT.map(|(of_torch, of_burn)| {
                        (format!("{torch}.{of_torch}"), format!("{burn}.{of_burn}"))
                    })),
                    false => pairs.push((torch, burn)),
                }
            }
        }
    }
    let pattern = |name: &str| format!("^{}\\.", name.replace('.', "\\."));
    let replaced = pairs.iter().map(|(torch, burn)| match to {
        To::Burn => (pattern(torch), format!("{burn}.")),
        To::Torch => (pattern(burn), format!("{torch}.")),
    });
    Ok(KeyRemapper::from_pattern_iter(replaced)?)
}

/// Loads weights that PyTorch saved: a state dictionary as `.pt`, `.pth` or `.safetensors`. The last layer is left as
/// it is if the file has none for this number of classes. Returns whether it was loaded.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or weights are missing or have another shape.
pub fn load<B: Backend>(network: &mut Network<B>, path: &Path) -> Result<bool> {
    match network {
        Network::Cnn(cnn) => load_into(cnn, path, names(false, To::Burn)?),
        Network::ResNet(resnet) => load_into(resnet, path, names(true, To::Burn)?),
    }
}

fn load_into<B: Backend, M: ModuleSnapshot<B>>(
    module: &mut M,
    path: &Path,
    names: KeyRemapper,
) -> Result<bool> {
    let cause = || format!("cannot load {}", path.display());
    let result = if path.extension().is_some_and(|extension| extension == "safetensors") {
        let store = SafetensorsStore::from_file(path).with_from_adapter(PyTorchToBurnAdapter);
        let mut store = store.allow_partial(true).validate(false).remap(names);
        module.load_from(&mut store).with_context(cause)?
    } else {
        let store = PytorchStore::from_file(path);
        let mut store = store.allow_partial(true).validate(false).remap(names);
        module.load_from(&mut store).with_context(cause)?
    };
    let is_last = |name: &str| name.starts_with("output.");
    let missing = result.missing.iter().filter(|(name, _)| !is_last(name));
    let missing = missing.map(|(name, _)| format!("{name} is missing"));
    let wrong = result
        .errors
        .iter()
        .filter(|error| !matches!(error, ApplyError::ShapeMismatch { path, .. } if is_last(path)));
    let causes: Vec<String> = wrong.map(ToString::to_string).chain(missing).take(3).collect();
    ensure!(
        causes.is_empty(),
        "{} does not have the weights of this network: {}",
        path.display(),
        causes.join("; ")
    );
    Ok(result.applied.iter().any(|name| is_last(name)))
}

/// Returns weights as a `.safetensors` file, with the names and layouts of PyTorch.
///
/// # Errors
///
/// Returns an error if the weights cannot be read back from the device.
pub fn to_bytes<B: Backend>(network: &Network<B>) -> Result<Vec<u8>> {
    let store = SafetensorsStore::from_bytes(None).with_to_adapter(BurnToPyTorchAdapter);
    let is_resnet = matches!(network, Network::ResNet(_));
    let mut store = store.remap(names(is_resnet, To::Torch)?);
    match network {
        Network::Cnn(cnn) => cnn.save_into(&mut store)?,
        Network::ResNet(resnet) => resnet.save_into(&mut store)?,
    }
    Ok(store.get_bytes()?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use burn::tensor::{Tensor, TensorData};
    use burn_wgsl::{Wgsl, WgslDevice};
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;
    use serde_json::Value;

    use super::*;
    use crate::model::Kind;
    use crate::sources::Format;

    /// As in `resnet18.py`.
    fn numbers(seed: usize, count: usize) -> impl Iterator<Item = f32> {
        let number = move |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
        (0..count).map(number)
    }

    /// The weights of `resnet18.py`, with their names and shapes.
    fn weights(names: &BTreeMap<String, Vec<usize>>) -> Vec<(&str, Vec<usize>, Vec<u8>)> {
        let mut weights = Vec::new();
        for (seed, (name, shape)) in names.iter().enumerate() {
            let fan_in = shape[1..].iter().product::<usize>() as f32;
            let value = |x: f32| match name.rsplit('.').next() {
                Some("running_var") => 1.0 + 0.5 * x.abs(),
                Some("weight") if shape.len() == 1 => 1.0 + 0.1 * x,
                Some("weight") => x * (2.0 / fan_in).sqrt(),
                _ => 0.1 * x,
            };
            let values = numbers(seed, shape.iter().product()).map(value);
            let bytes = values.flat_map(f32::to_le_bytes).collect();
            weights.push((&**name, shape.clone(), bytes));
        }
        weights
    }

    #[test]
    fn weights_of_torchvision_have_its_scores_and_return_to_it() {
        let fixture: Value =
            serde_json::from_str(include_str!("resnet18.json")).expect("it is JSON");
        let names: BTreeMap<String, Vec<usize>> =
            serde_json::from_value(fixture["names"].clone()).expect("it is a map of shapes");
        let weights = weights(&names);
        let views = weights.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
            (*name, view.expect("the size is right"))
        });
        let folder = std::env::temp_dir().join(format!("images-{}-weights", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let (from, to) = (folder.join("from.safetensors"), folder.join("to.safetensors"));
        safetensors::serialize_to_file(views, None, &from).expect("the folder is writable");

        let device = WgslDevice::Cpu;
        let format = Format { channels: 3, side: 72 };
        let network = |classes| Network::<Wgsl>::new(Kind::Resnet18, format, classes, &device);
        let mut resnet = network(10);
        assert!(load(&mut resnet, &from).expect("it has all weights"));
        let images = TensorData::new(numbers(1000, 2 * 3 * 72 * 72).collect(), [2, 3, 72, 72]);
        let images = Tensor::<Wgsl, 4>::from_data(images, &device);
        let found = resnet.forward(images.clone()).into_data();
        let expected: Vec<f32> =
            serde_json::from_value(fixture["scores"].clone()).expect("it is a list");
        for (found, expected) in found.iter::<f32>().zip(&expected) {
            assert!(
                (found - expected).abs() <= 1e-4 * expected.abs().max(1.0),
                "{found} {expected}"
            );
        }

        let bytes = to_bytes(&resnet).expect("the weights are there");
        std::fs::write(&to, &bytes).expect("the folder is writable");
        let saved = safetensors::SafeTensors::deserialize(&bytes).expect("it is valid");
        for (name, shape, bytes) in &weights {
            let tensor = saved.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((tensor.shape(), tensor.data()), (&shape[..], &bytes[..]), "{name}");
        }
        // Another number of classes: the last layer starts anew.
        assert!(!load(&mut network(4), &to).expect("the rest fits"));
        let mut small = Network::<Wgsl>::new(Kind::Cnn, format, 10, &device);
        let error = load(&mut small, &to).expect_err("it is another network").to_string();
        assert!(error.contains("convs.0.weight is missing"), "{error}");
        let bytes = to_bytes(&small).expect("the weights are there");
        std::fs::write(&to, &bytes).expect("the folder is writable");
        let mut other = Network::<Wgsl>::new(Kind::Cnn, format, 10, &device);
        assert!(load(&mut other, &to).expect("it has all weights"));
        small
            .forward(images.clone())
            .into_data()
            .assert_eq(&other.forward(images).into_data(), true);
        let none = load(&mut other, &folder.join("none.pth")).expect_err("there is no file");
        assert!(none.to_string().contains("none.pth"), "{none}");
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
