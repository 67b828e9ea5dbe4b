//! The memory of a training step, for the page of experiments.

use burn::module::AutodiffModule;
use burn::nn::{Linear, LinearConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::gelu;
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::{Precision, Wgsl, WgslDevice, autocast, memory};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::Training;
use crate::device::parse_device;
use crate::script::{Result, js_error, read_floats};

const RATE: f64 = 1e-3;

/// A network of layers of equal width with GELU, and its optimizer.
struct Network {
    layers: Vec<Linear<Training>>,
    optimizer: OptimizerAdaptor<Adam, Linear<Training>, Training>,
}

impl Network {
    fn new(width: usize, layers: usize, device: &WgslDevice) -> Self {
        let layer = |_| LinearConfig::new(width, width).init(device);
        Self { layers: (0..layers).map(layer).collect(), optimizer: AdamConfig::new().init() }
    }

    /// Takes a step. All results are kept for the backward pass. Returns the loss.
    fn step(&mut self, x: Tensor<Training, 2>) -> Tensor<Wgsl, 1> {
        let y = self.layers.iter().fold(x, |x, layer| gelu(layer.forward(x)));
        let loss = y.powi_scalar(2).mean();
        let mut gradients = loss.backward();
        for layer in &mut self.layers {
            let of_layer = GradientsParams::from_module(&mut gradients, layer);
            *layer = self.optimizer.step(RATE, layer.clone(), of_layer);
        }
        loss.inner()
    }

    /// Takes the same step. Only the input of each layer is kept, and the layer is computed again.
    fn checkpointed_step(&mut self, x: Tensor<Training, 2>) -> Tensor<Wgsl, 1> {
        let (mut y, mut inputs) = (x.inner(), Vec::new());
        for layer in &self.layers {
            inputs.push(y.clone());
            y = gelu(layer.valid().forward(y));
        }
        let scale = 2.0 / y.shape().num_elements() as f64;
        let loss = y.clone().powi_scalar(2).mean();
        // The gradient of the mean of the squares.
        let mut upstream = y * scale;
        for layer in self.layers.iter_mut().rev() {
            let Some(input) = inputs.pop() else { break };
            let input = Tensor::<Training, 2>::from_inner(input).require_grad();
            let y = gelu(layer.forward(input.clone()));
            let mut gradients = (y * Tensor::from_inner(upstream)).sum().backward();
            let Some(of_input) = input.grad_remove(&mut gradients) else { break };
            upstream = of_input;
            let of_layer = GradientsParams::from_module(&mut gradients, layer);
            *layer = self.optimizer.step(RATE, layer.clone(), of_layer);
        }
        loss
    }
}

/// Trains a network for two steps with batches of `batch` rows, and returns the peak of the device's memory in the
/// second: its parameters, gradients and moments, and what the backward pass needs. Products are in f16 with `half`.
#[wasm_bindgen]
pub async fn memory_of_step(
    device: &str,
    width: usize,
    layers: usize,
    batch: usize,
    half: bool,
    checkpointing: bool,
) -> Result<f64> {
    let device = parse_device(device)?;
    let before = memory::usage(&device).map_err(js_error)?.in_use;
    let mut network = Network::new(width, layers, &device);
    let _scope = half.then(|| autocast(&device, Precision::F16));
    for _ in 0..2 {
        memory::reset_peak(&device).map_err(js_error)?;
        let x = Tensor::random([batch, width], Distribution::Normal(0.0, 1.0), &device);
        let loss = match checkpointing {
            true => network.checkpointed_step(x),
            false => network.step(x),
        };
        read_floats(loss).await?;
    }
    let peak = memory::usage(&device).map_err(js_error)?.peak;
    Ok(peak.saturating_sub(before) as f64)
}
