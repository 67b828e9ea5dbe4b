//! Trains a small network in f32 and in bf16 with autocast, from given weights on given data:
//! `cargo bench --bench mixed`. `torch_mixed.py` does the same with PyTorch, for comparison of the losses.
//!
//! `MIXED_DEVICE` selects the device [default: cpu].

use burn::module::{Module, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::gelu;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast};

type B = Autodiff<Wgsl>;

const SAMPLES: usize = 256;
const INPUTS: usize = 32;
const WIDTH: usize = 64;
const CLASSES: usize = 10;
const STEPS: usize = 300;
const REPORT_EVERY: usize = 50;

#[derive(Module, Debug)]
struct Network<B: Backend> {
    first: Linear<B>,
    norm: LayerNorm<B>,
    middle: Linear<B>,
    last: Linear<B>,
}

impl Network<B> {
    fn new(device: &WgslDevice) -> Self {
        let linear = |seed, [inputs, outputs]: [usize; 2]| {
            let mut layer = LinearConfig::new(inputs, outputs).init(device);
            let scale = 2.0 / (inputs as f32).sqrt();
            layer.weight = Param::from_tensor(values(seed, [inputs, outputs], device) * scale);
            layer.bias = Some(Param::from_tensor(values(seed + 100, [outputs], device) * scale));
            layer
        };
        Self {
            first: linear(1, [INPUTS, WIDTH]),
            norm: LayerNormConfig::new(WIDTH).init(device),
            middle: linear(2, [WIDTH, WIDTH]),
            last: linear(3, [WIDTH, CLASSES]),
        }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let x = self.norm.forward(gelu(self.first.forward(x)));
        self.last.forward(gelu(self.middle.forward(x)))
    }
}

/// Returns numbers from -0.5 to 0.5 that depend on their position and the seed alone.
fn values<const D: usize>(seed: u32, shape: [usize; D], device: &WgslDevice) -> Tensor<B, D> {
    let value = |index: u32| {
        let mut x = index.wrapping_add(seed.wrapping_mul(0x9e37_79b9));
        x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
        x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
        x ^= x >> 15;
        (x >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let len: usize = shape.iter().product();
    let values: Vec<f32> = (0..len as u32).map(value).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn main() {
    let device = std::env::var("MIXED_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device: WgslDevice = device.parse().unwrap_or_else(|error| panic!("MIXED_DEVICE: {error}"));
    for precision in [Precision::F32, Precision::Bf16] {
        let losses = train(precision, &device);
        let losses: Vec<String> = losses.iter().map(|loss| format!("{loss:.5}")).collect();
        println!("| burn-wgsl, {device} | {precision} | {} |", losses.join(" | "));
    }
}

/// Returns the losses of some steps.
fn train(precision: Precision, device: &WgslDevice) -> Vec<f32> {
    let mut network = Network::new(device);
    let mut adam = AdamConfig::new().with_epsilon(1e-8).init();
    let x = values(7, [SAMPLES, INPUTS], device) * 4.0;
    // Ten classes by the sums of the first inputs.
    let sums = x.clone().slice([0..SAMPLES, 0..4]).sum_dim(1).reshape([SAMPLES]);
    let labels: Tensor<B, 1, Int> = ((sums + 8.0) * 0.625).int().clamp(0, CLASSES as i64 - 1);
    let cross_entropy = CrossEntropyLossConfig::new().init(device);
    let mut losses = Vec::new();
    for step in 0..=STEPS {
        let scope = autocast(device, precision);
        let loss = cross_entropy.forward(network.forward(x.clone()), labels.clone());
        drop(scope);
        if step.is_multiple_of(REPORT_EVERY) {
            losses.push(loss.clone().into_scalar());
        }
        let grads = GradientsParams::from_grads(loss.backward(), &network);
        network = adam.step(1e-3, network, grads);
    }
    losses
}
