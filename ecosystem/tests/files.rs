//! burn-store: a model with statistics of batches is saved and loaded.

use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::Distribution;
use burn_store::{BurnpackStore, ModuleSnapshot, SafetensorsStore};

#[derive(Module, Debug)]
struct Network {
    norm: BatchNorm,
    layer: Linear,
}

impl Network {
    fn new(device: &Device) -> Self {
        Self {
            norm: BatchNormConfig::new(6).init(device),
            layer: LinearConfig::new(6, 3).init(device),
        }
    }

    fn results(&self, device: &Device) -> Vec<f32> {
        let x: Vec<f32> = (0..24).map(|i| (i % 7) as f32 / 3.0 - 1.0).collect();
        let x = Tensor::<2>::from_data(TensorData::new(x, [4, 6]), device);
        self.layer.forward(self.norm.forward(x)).into_data().iter::<f32>().collect()
    }
}

#[test]
fn models_are_saved_and_loaded() {
    let device = Device::default();
    let network = Network::new(&device.clone().autodiff());
    // A batch changes the running statistics.
    let x = Tensor::<2>::random([8, 6], Distribution::Normal(2.0, 3.0), &device);
    network.norm.forward(x.autodiff());
    let network = network.valid();
    let expected = network.results(&device);
    let folder = tempfile::tempdir().expect("a folder for files");

    let file = folder.path().join("model.safetensors");
    network.save_into(&mut SafetensorsStore::from_file(&file)).expect("it is saved");
    let mut loaded = Network::new(&device);
    assert_ne!(loaded.results(&device), expected);
    let applied = loaded.load_from(&mut SafetensorsStore::from_file(&file)).expect("it is loaded");
    assert!(applied.errors.is_empty() && applied.missing.is_empty(), "{applied:?}");
    assert_eq!(loaded.results(&device), expected);

    let file = folder.path().join("model.bpk");
    network.save_into(&mut BurnpackStore::from_file(&file)).expect("it is saved");
    let mut loaded = Network::new(&device);
    loaded.load_from(&mut BurnpackStore::from_file(&file)).expect("it is loaded");
    assert_eq!(loaded.results(&device), expected);
}
