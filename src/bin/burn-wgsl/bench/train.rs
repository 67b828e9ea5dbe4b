//! The models that are trained: three common kinds, small, made of stock Burn modules.

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};
use burn_wgsl::{Wgsl, WgslDevice};

use super::job::{Job, op};
use super::workload::Cost;

type Train = Autodiff<Wgsl>;

/// Backward passes compute two products for each of forward's: for the inputs and for the weights.
const TRAINING: f64 = 3.0;
const CLASSES: usize = 10;

/// One batch, again and again: what the numbers are does not change what a step costs.
fn steps<const D: usize, M: AutodiffModule<Train> + 'static>(
    model: M,
    input: [usize; D],
    device: &WgslDevice,
    scores: impl Fn(&M, Tensor<Train, D>) -> Tensor<Train, 2> + 'static,
) -> Box<dyn Job> {
    let x = Tensor::<Train, D>::random(input, Distribution::Normal(0.0, 1.0), device);
    let top = CLASSES as f64;
    let labels =
        Tensor::<Train, 1, Int>::random([input[0]], Distribution::Uniform(0.0, top), device);
    let loss = CrossEntropyLossConfig::new().init(device);
    let mut adam = AdamConfig::new().init();
    let mut current = Some(model);
    op(move || {
        if let Some(model) = current.take() {
            let loss = loss.forward(scores(&model, x.clone()), labels.clone());
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            current = Some(adam.step(1e-3, model, gradients));
        }
    })
}

/// The cost of a step: the multiply-adds of forward, and the elements of its largest tensor and of all together.
fn step_cost(multiply_adds: f64, largest: f64, elements: f64) -> Cost {
    Cost {
        flops: TRAINING * 2.0 * multiply_adds,
        bytes: 0.0,
        largest: 4.0 * largest,
        memory: 4.0 * elements,
    }
}

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    out: Linear<B>,
}

pub fn mlp(batch: usize, device: &WgslDevice) -> Box<dyn Job> {
    let model = Mlp {
        hidden: LinearConfig::new(784, 512).init(device),
        out: LinearConfig::new(512, CLASSES).init(device),
    };
    steps(model, [batch, 784], device, |model: &Mlp<Train>, x| {
        model.out.forward(relu(model.hidden.forward(x)))
    })
}

pub fn mlp_cost(batch: usize) -> Cost {
    let (batch, weights) = (batch as f64, 784.0 * 512.0 + 5120.0);
    step_cost(batch * weights, (batch * 784.0).max(weights), 4.0 * weights + 6.0 * batch * 784.0)
}

#[derive(Module, Debug)]
struct Cnn<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    pool: MaxPool2d,
    hidden: Linear<B>,
    out: Linear<B>,
}

pub fn cnn(batch: usize, device: &WgslDevice) -> Box<dyn Job> {
    let conv = |channels| {
        Conv2dConfig::new(channels, [3, 3])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .init(device)
    };
    let model = Cnn {
        conv1: conv([1, 32]),
        conv2: conv([32, 64]),
        pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
        hidden: LinearConfig::new(64 * 7 * 7, 128).init(device),
        out: LinearConfig::new(128, CLASSES).init(device),
    };
    steps(model, [batch, 1, 28, 28], device, |model: &Cnn<Train>, x| {
        let x = model.pool.forward(relu(model.conv1.forward(x)));
        let x = model.pool.forward(relu(model.conv2.forward(x)));
        model.out.forward(relu(model.hidden.forward(x.flatten::<2>(1, 3))))
    })
}

pub fn cnn_cost(batch: usize) -> Cost {
    let batch = batch as f64;
    let convolutions = 784.0 * 9.0 * 32.0 + 196.0 * 9.0 * 32.0 * 64.0;
    let weights = 3136.0 * 128.0 + 1280.0;
    let widest = batch * 784.0 * 32.0;
    step_cost(batch * (convolutions + weights), widest.max(weights), 8.0 * widest + 4.0 * weights)
}

const WIDTH: usize = 128;
const SEQUENCE: usize = 64;
const FEED_FORWARD: usize = 512;
const LAYERS: usize = 2;
const HEADS: usize = 4;

#[derive(Module, Debug)]
struct Transformer<B: Backend> {
    encoder: TransformerEncoder<B>,
    out: Linear<B>,
}

pub fn transformer(batch: usize, device: &WgslDevice) -> Box<dyn Job> {
    let model = Transformer {
        encoder: TransformerEncoderConfig::new(WIDTH, FEED_FORWARD, HEADS, LAYERS).init(device),
        out: LinearConfig::new(WIDTH, CLASSES).init(device),
    };
    steps(model, [batch, SEQUENCE, WIDTH], device, |model: &Transformer<Train>, x| {
        let x = model.encoder.forward(TransformerEncoderInput::new(x));
        model.out.forward(x.mean_dim(1).flatten::<2>(1, 2))
    })
}

pub fn transformer_cost(batch: usize) -> Cost {
    let (width, sequence, wide) = (WIDTH as f64, SEQUENCE as f64, FEED_FORWARD as f64);
    let tokens = batch as f64 * sequence;
    let weights = 4.0 * width * width + 2.0 * width * wide;
    let layer = tokens * (weights + 2.0 * sequence * width);
    let widest = tokens * wide.max(sequence * HEADS as f64);
    let layers = LAYERS as f64;
    step_cost(layers * layer, widest, layers * (8.0 * widest + 4.0 * weights))
}
