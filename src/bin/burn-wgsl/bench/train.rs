//! Training steps of a small MLP, CNN, transformer encoder and LSTM, of ResNet and of a GPT.

use burn::tensor::{Distribution, Tensor};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast};

use super::cost::Cost;
use super::job::{Job, JobOutput, op};
pub use decoding::Weights;
use models::{CLASSES, Step};
use networks::{GPT2, GptSizes, ResNetSizes};

#[path = "../../../../benches/shared/burn_0_21.rs"]
#[allow(
    clippy::clone_on_copy,
    unused_imports,
    dead_code,
    reason = "the comparison with other backends uses more"
)]
mod burn_api;
#[path = "../../../../benches/shared/decoding.rs"]
mod decoding;
#[path = "../../../../benches/shared/models.rs"]
mod models;
#[path = "../../../../benches/shared/networks.rs"]
mod networks;

type Inner = Wgsl;

/// FLOPs of a training step relative to the forward pass. For each product in the forward pass the
/// backward pass computes two: the gradients of the input and of the weights.
const TRAINING_FACTOR: f64 = 3.0;

// Sizes of the transformer and the LSTM.
const WIDTH: usize = 128;
const SEQUENCE: usize = 64;
const FEED_FORWARD: usize = 512;
const LAYERS: usize = 2;
const HEADS: usize = 4;

/// Returns random numbers. The values of a batch do not affect the time.
fn batch<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Autodiff<Wgsl>, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Returns a job that runs a training step on a fixed batch.
fn job(mut step: Step) -> Box<dyn Job> {
    op(move || drop(step()))
}

/// Returns the cost of a training step from the multiply-adds of the forward pass, the elements of
/// the largest tensor and the elements of all tensors.
fn step_cost(multiply_adds: f64, largest_tensor: f64, elements: f64) -> Cost {
    Cost {
        flops: TRAINING_FACTOR * 2.0 * multiply_adds,
        bytes: 0.0,
        largest_tensor: 4.0 * largest_tensor,
        memory: 4.0 * elements,
    }
}

/// Returns a training step of an MLP on `[n, 784]`.
pub fn mlp(n: usize, device: &WgslDevice) -> Box<dyn Job> {
    job(models::mlp(batch([n, 784], device), device))
}

/// Returns the cost of [`mlp`].
pub fn mlp_cost(batch: usize) -> Cost {
    let (batch, weights) = (batch as f64, 784.0 * 512.0 + 512.0 * CLASSES as f64);
    step_cost(batch * weights, (batch * 784.0).max(weights), 4.0 * weights + 6.0 * batch * 784.0)
}

/// Returns a training step of a CNN on `[n, 1, 28, 28]`.
pub fn cnn(n: usize, device: &WgslDevice) -> Box<dyn Job> {
    job(models::cnn(batch([n, 1, 28, 28], device), device))
}

/// Returns the cost of [`cnn`].
pub fn cnn_cost(batch: usize) -> Cost {
    let batch = batch as f64;
    // 28 * 28 = 784 pixels, 14 * 14 = 196 after the first pooling layer.
    let convolutions = 784.0 * 9.0 * 32.0 + 196.0 * 9.0 * 32.0 * 64.0;
    let linear_weights = 3136.0 * 128.0 + 128.0 * CLASSES as f64;
    let largest = batch * 784.0 * 32.0;
    step_cost(
        batch * (convolutions + linear_weights),
        largest.max(linear_weights),
        8.0 * largest + 4.0 * linear_weights,
    )
}

/// Returns a training step of a transformer encoder on `[n, SEQUENCE, WIDTH]`.
pub fn transformer(n: usize, device: &WgslDevice) -> Box<dyn Job> {
    let [x, target] = [(); 2].map(|()| batch([n, SEQUENCE, WIDTH], device));
    job(models::transformer(x, target, [LAYERS, HEADS, FEED_FORWARD], device))
}

/// Returns the cost of [`transformer`].
pub fn transformer_cost(batch: usize) -> Cost {
    let (width, sequence, feed_forward) = (WIDTH as f64, SEQUENCE as f64, FEED_FORWARD as f64);
    let tokens = batch as f64 * sequence;
    let layer_weights = 4.0 * width * width + 2.0 * width * feed_forward;
    // The projections and the feed-forward block, and the two products of attention.
    let layer_multiply_adds = tokens * (layer_weights + 2.0 * sequence * width);
    let largest = tokens * feed_forward.max(sequence * HEADS as f64);
    let layers = LAYERS as f64;
    // And the linear layer at the end.
    step_cost(
        layers * layer_multiply_adds + tokens * width * width,
        largest,
        layers * (8.0 * largest + 4.0 * layer_weights),
    )
}

/// Returns a training step of an LSTM on `[n, SEQUENCE, WIDTH]`.
pub fn lstm(n: usize, device: &WgslDevice) -> Box<dyn Job> {
    job(models::lstm(batch([n, SEQUENCE, WIDTH], device), device))
}

/// Returns the cost of [`lstm`].
pub fn lstm_cost(batch: usize) -> Cost {
    let (width, tokens) = (WIDTH as f64, (batch * SEQUENCE) as f64);
    // Four gates, each with a product of the input and one of the state.
    let weights = 8.0 * width * width;
    step_cost(tokens * weights, tokens * width, 40.0 * tokens * width + 4.0 * weights)
}

/// A ResNet, and what it costs.
#[derive(Clone, Copy)]
pub struct ResNet {
    sizes: ResNetSizes,
    /// The multiply-adds of an image of 224 x 224, and the elements of all results.
    multiply_adds: f64,
    elements: f64,
    weights: f64,
}

pub const RESNET18: ResNet =
    ResNet { sizes: networks::RESNET18, multiply_adds: 1.82e9, elements: 7.1e6, weights: 11.7e6 };

pub const RESNET50: ResNet =
    ResNet { sizes: networks::RESNET50, multiply_adds: 4.09e9, elements: 32e6, weights: 25.6e6 };

/// Returns a training step of a ResNet on `n` images of 224 x 224.
pub fn resnet(network: ResNet, n: usize, device: &WgslDevice) -> Box<dyn Job> {
    let x = batch([n, 3, 224, 224], device);
    job(networks::resnet(x, network.sizes, device))
}

/// Returns the cost of [`resnet`].
pub fn resnet_cost(network: ResNet, batch: usize) -> Cost {
    let (batch, ResNet { multiply_adds, elements, weights, .. }) = (batch as f64, network);
    let largest = batch * 64.0 * 112.0 * 112.0;
    step_cost(batch * multiply_adds, largest, batch * elements + 4.0 * weights)
}

/// Returns a training step of a GPT of GPT-2's size on `n` sequences.
pub fn gpt2(n: usize, device: &WgslDevice) -> Box<dyn Job> {
    job(networks::gpt(n, GPT2, device))
}

/// Returns the cost of [`gpt2`].
pub fn gpt2_cost(batch: usize) -> Cost {
    let GptSizes { vocabulary, width, layers, length, .. } = GPT2;
    let [vocabulary, width, layers, length] =
        [vocabulary, width, layers, length].map(|size| size as f64);
    let tokens = batch as f64 * length;
    let layer_weights = 12.0 * width * width;
    // The two products of attention, and the linear layer at the end.
    let of_token = layers * (layer_weights + 2.0 * length * width) + width * vocabulary;
    let weights = layers * layer_weights + 2.0 * width * vocabulary;
    let activations = tokens * (20.0 * layers * width + 3.0 * vocabulary);
    let largest = tokens.max(width) * vocabulary;
    step_cost(tokens * of_token, largest, activations + 4.0 * weights)
}

/// Returns a step of a GPT of GPT-2's size that reads a token after `n - 1` others.
pub fn gpt2_token(weights: Weights, n: usize, device: &WgslDevice) -> Box<dyn Job> {
    op(decoding::gpt_tokens(n, GPT2, weights, device))
}

/// Returns the cost of [`gpt2_token`]: each weight, key and value is read once.
pub fn gpt2_token_cost(weights: Weights, length: usize) -> Cost {
    let GptSizes { vocabulary, width, layers, .. } = GPT2;
    let [vocabulary, width, layers, length] =
        [vocabulary, width, layers, length].map(|size| size as f64);
    // A scale of four bytes for 32 integers.
    let (of_weight, of_key) = match weights {
        Weights::F32 => (4.0, 4.0),
        Weights::F16 => (2.0, 2.0),
        Weights::Q8 => (1.125, 4.0),
        Weights::Q4 => (0.625, 4.0),
    };
    let products = 12.0 * layers * width * width + width * vocabulary;
    let kept = 2.0 * layers * width * length;
    let bytes = of_weight * products + of_key * kept;
    // Embeddings are f16. Matrices are quantised from f32.
    let table = 2.0 * vocabulary * width;
    let part = 4.0 * decoding::MAX_ELEMENTS as f64;
    let largest_tensor = table.max(part).max(of_key * kept / layers);
    Cost { flops: 2.0 * (products + kept), bytes, largest_tensor, memory: bytes + table + part }
}

/// A job with products in f16.
struct InF16 {
    job: Box<dyn Job>,
    device: WgslDevice,
}

impl Job for InF16 {
    fn run(&mut self) -> JobOutput {
        let _scope = autocast(&self.device, Precision::F16);
        self.job.run()
    }
}

/// Returns `job` with products in f16.
pub fn in_f16(job: Box<dyn Job>, device: &WgslDevice) -> Box<dyn Job> {
    Box::new(InF16 { job, device: *device })
}
