//! Schedules, clipped steps, averages of weights and saved weights beside PyTorch's: `fixtures.json` and `model.pt` are
//! written by `fixtures.py`.

use burn::lr_scheduler::LrScheduler;
use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::lr_scheduler::exponential::ExponentialLrSchedulerConfig;
use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::lr_scheduler::step::StepLrSchedulerConfig;
use burn::module::{AutodiffModule, Module, Param};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamWConfig, GradientsParams, Optimizer, SgdConfig};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_store::{BurnToPyTorchAdapter, ModuleSnapshot, PytorchStore, SafetensorsStore};
use burn_wgsl::scaler::GradScalerConfig;
use burn_wgsl::train::{Ema, MeanGradients};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
use safetensors::SafeTensors;
use serde_json::Value;

use crate::common::devices;

type B = Autodiff<Wgsl>;

const TOLERANCE: f64 = 1e-5;

/// Returns the numbers of a fixture.
fn fixture(group: &str, name: &str) -> Vec<f64> {
    let fixtures: Value = serde_json::from_str(include_str!("fixtures.json")).expect("it is JSON");
    let list = fixtures[group][name].as_array().expect("it is a list");
    list.iter().map(|number| number.as_f64().expect("it is a number")).collect()
}

fn assert_near(label: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{label}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let difference = (found - expected).abs();
        assert!(difference <= TOLERANCE, "{label} {index}: {found} instead of {expected}");
    }
}

#[test]
fn schedules_are_those_of_torch() {
    fn check(name: &str, mut schedule: impl LrScheduler) {
        let expected = fixture("rates", name);
        let found: Vec<f64> = expected.iter().map(|_| schedule.step()).collect();
        assert_near(name, &found, &expected);
    }
    let cosine = CosineAnnealingLrSchedulerConfig::new(0.1, 23).with_min_lr(0.001);
    check("cosine", cosine.init().expect("it is valid"));
    check("linear", LinearLrSchedulerConfig::new(0.1, 0.02, 16).init().expect("it is valid"));
    check("exponential", ExponentialLrSchedulerConfig::new(0.1, 0.9).init().expect("it is valid"));
    check("step", StepLrSchedulerConfig::new(0.1, 7).with_gamma(0.5).init().expect("it is valid"));
}

#[derive(Module, Debug)]
struct Model<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
    norm: LayerNorm<B>,
}

impl Model<Wgsl> {
    fn new(device: &WgslDevice) -> Self {
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        let norm = LayerNormConfig::new(2).init(device);
        Self { hidden: linear(4, 3), output: linear(3, 2), norm }
    }

    fn forward(&self, x: Tensor<Wgsl, 2>) -> Tensor<Wgsl, 2> {
        self.norm.forward(self.output.forward(relu(self.hidden.forward(x))))
    }
}

/// The names of PyTorch's layers, and those of the model.
const NAMES: [(&str, &str); 3] = [("0", "hidden"), ("2", "output"), ("3", "norm")];

#[test]
fn saved_weights_are_those_of_torch_and_return_to_it() {
    for device in devices() {
        let mut file = PytorchStore::from_file("tests/training/torch/model.pt");
        for (torch, burn) in NAMES {
            file = file.with_key_remapping(format!("^{torch}\\."), format!("{burn}."));
        }
        let mut model = Model::new(&device);
        model.load_from(&mut file).expect("all weights are there");
        let results = model.forward(numbers(9, [5, 4], &device).inner()).into_data();
        let results: Vec<f64> = results.iter().collect();
        assert_near(&format!("results on {device}"), &results, &fixture("model", "results"));

        let mut file = SafetensorsStore::from_bytes(None).with_to_adapter(BurnToPyTorchAdapter);
        for (torch, burn) in NAMES {
            file = file.with_key_remapping(format!("^{burn}\\."), format!("{torch}."));
        }
        model.save_into(&mut file).expect("the device works");
        let bytes = file.get_bytes().expect("it was saved");
        // The weights of `save_model`, in PyTorch's layouts.
        let saved = SafeTensors::deserialize(&bytes).expect("it is valid");
        let shapes: [(&str, &[usize]); 6] = [
            ("0.weight", &[3, 4]),
            ("0.bias", &[3]),
            ("2.weight", &[2, 3]),
            ("2.bias", &[2]),
            ("3.weight", &[2]),
            ("3.bias", &[2]),
        ];
        assert_eq!(saved.len(), shapes.len(), "{:?} on {device}", saved.names());
        for (seed, (name, shape)) in (5..).zip(shapes) {
            let tensor = saved.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            let count = [shape.iter().product()];
            let expected: Vec<f32> = numbers(seed, count, &device).into_data().iter().collect();
            let expected: Vec<u8> = expected.into_iter().flat_map(f32::to_le_bytes).collect();
            assert_eq!((tensor.shape(), tensor.data()), (shape, &expected[..]), "{name}");
        }
    }
}

/// As `numbers` in `fixtures.py`.
fn numbers<const D: usize>(seed: usize, shape: [usize; D], device: &WgslDevice) -> Tensor<B, D> {
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f64 / 1001.0 - 1.0;
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| number(i) as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn layer(device: &WgslDevice) -> Linear<B> {
    let mut layer: Linear<B> = LinearConfig::new(6, 3).init(device);
    layer.weight = Param::from_tensor(numbers(1, [6, 3], device));
    layer.bias = Some(Param::from_tensor(numbers(2, [3], device)));
    layer
}

fn weights(layer: &Linear<Wgsl>) -> Vec<f64> {
    let bias = layer.bias.as_ref().expect("it has one").val();
    let parts = [layer.weight.val().into_data(), bias.into_data()];
    parts.iter().flat_map(|data| data.iter::<f64>().collect::<Vec<_>>()).collect()
}

#[test]
fn steps_and_averages_are_those_of_torch() {
    fn train(
        name: &str,
        mut optimizer: impl Optimizer<Linear<B>, B>,
        rate: f64,
        decay: Option<f64>,
        device: &WgslDevice,
    ) {
        let mut layer = layer(device);
        let mut average = decay.map(|decay| Ema::new(&layer, decay));
        let (x, y) = (numbers(3, [12, 6], device) * 4, numbers(4, [12, 3], device));
        for _ in 0..10 {
            // In two parts of unequal size, whose mean is the gradient of the whole.
            let mut mean = MeanGradients::new();
            for rows in [0..7, 7..12] {
                let difference = layer.forward(x.clone().slice_dim(0, rows.clone()))
                    - y.clone().slice_dim(0, rows.clone());
                let loss = difference.powi_scalar(2).mean();
                let gradients = GradientsParams::from_grads(loss.backward(), &layer);
                mean.add(&layer, gradients, rows.len());
            }
            layer = optimizer.step(rate, layer, mean.take());
            if let Some(average) = &mut average {
                average.update(&layer);
            }
        }
        let found = match &average {
            Some(average) => weights(average.model()),
            None => weights(&layer.valid()),
        };
        assert_near(&format!("{name} on {device}"), &found, &fixture("weights", name));
    }
    for device in devices() {
        // torch's momentum has no dampening.
        let momentum = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false };
        let sgd = || SgdConfig::new().with_momentum(Some(momentum.clone())).init::<B, Linear<B>>();
        let adamw = AdamWConfig::new().with_epsilon(1e-5).with_weight_decay(0.02);
        train("sgd", sgd(), 0.05, None, &device);
        train("adamw", adamw.init::<B, Linear<B>>(), 0.01, None, &device);
        let scaler = GradScalerConfig { enabled: false, ..Default::default() }.init(&device);
        train("clipped", scaler.wrap(sgd()).with_max_norm(0.5), 0.05, None, &device);
        train("average", sgd(), 0.05, Some(0.8), &device);
    }
}
