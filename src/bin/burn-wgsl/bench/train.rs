//! Training workloads: a small MLP, CNN, transformer encoder and LSTM, built from Burn's own modules.

use burn::module::{AutodiffModule, Module};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Linear, LinearConfig, Lstm, LstmConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use super::cost::Cost;
use super::job::{Job, op};

type TrainBackend = Autodiff<Wgsl>;

/// FLOPs of a training step relative to the forward pass. For each product in the forward pass the
/// backward pass computes two: the gradients of the input and of the weights.
const TRAINING_FACTOR: f64 = 3.0;
/// Number of output classes of every model.
const CLASSES: usize = 10;

/// Returns a job that runs one Adam step on a fixed random batch. `forward` returns the logits,
/// `[batch, CLASSES]`. The values of the batch do not affect the time.
fn training_step<const D: usize, M: AutodiffModule<TrainBackend> + 'static>(
    model: M,
    input_shape: [usize; D],
    device: &WgslDevice,
    forward: impl Fn(&M, Tensor<TrainBackend, D>) -> Tensor<TrainBackend, 2> + 'static,
) -> Box<dyn Job> {
    let x = Tensor::<TrainBackend, D>::random(input_shape, Distribution::Normal(0.0, 1.0), device);
    let labels = Tensor::<TrainBackend, 1, Int>::random(
        [input_shape[0]],
        Distribution::Uniform(0.0, CLASSES as f64),
        device,
    );
    let loss = CrossEntropyLossConfig::new().init(device);
    let mut adam = AdamConfig::new().init();
    // An `Option`, because `step` takes the model by value.
    let mut current_model = Some(model);
    op(move || {
        if let Some(model) = current_model.take() {
            let loss = loss.forward(forward(&model, x.clone()), labels.clone());
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            current_model = Some(adam.step(1e-3, model, gradients));
        }
    })
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

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    out: Linear<B>,
}

/// Returns a training step of an MLP 784-512-10 on `[batch, 784]`.
pub fn mlp(batch: usize, device: &WgslDevice) -> Box<dyn Job> {
    let model = Mlp {
        hidden: LinearConfig::new(784, 512).init(device),
        out: LinearConfig::new(512, CLASSES).init(device),
    };
    training_step(model, [batch, 784], device, |model: &Mlp<TrainBackend>, x| {
        model.out.forward(relu(model.hidden.forward(x)))
    })
}

/// Returns the cost of [`mlp`].
pub fn mlp_cost(batch: usize) -> Cost {
    let (batch, weights) = (batch as f64, 784.0 * 512.0 + 512.0 * CLASSES as f64);
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

/// Returns a training step of a CNN on `[batch, 1, 28, 28]`: two 3x3 convolutions with pooling and
/// two linear layers.
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
    training_step(model, [batch, 1, 28, 28], device, |model: &Cnn<TrainBackend>, x| {
        let x = model.pool.forward(relu(model.conv1.forward(x)));
        let x = model.pool.forward(relu(model.conv2.forward(x)));
        model.out.forward(relu(model.hidden.forward(x.flatten::<2>(1, 3))))
    })
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

// Dimensions of the transformer encoder.
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

/// Returns a training step of a transformer encoder on `[batch, SEQUENCE, WIDTH]`, followed by the
/// mean over the sequence and a linear layer.
pub fn transformer(batch: usize, device: &WgslDevice) -> Box<dyn Job> {
    let model = Transformer {
        encoder: TransformerEncoderConfig::new(WIDTH, FEED_FORWARD, HEADS, LAYERS).init(device),
        out: LinearConfig::new(WIDTH, CLASSES).init(device),
    };
    training_step(
        model,
        [batch, SEQUENCE, WIDTH],
        device,
        |model: &Transformer<TrainBackend>, x| {
            let x = model.encoder.forward(TransformerEncoderInput::new(x));
            model.out.forward(x.mean_dim(1).flatten::<2>(1, 2))
        },
    )
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
    step_cost(layers * layer_multiply_adds, largest, layers * (8.0 * largest + 4.0 * layer_weights))
}

#[derive(Module, Debug)]
struct Recurrent<B: Backend> {
    lstm: Lstm<B>,
    out: Linear<B>,
}

/// Returns a training step of an LSTM on `[batch, SEQUENCE, WIDTH]`, followed by a linear layer on
/// the last output.
pub fn lstm(batch: usize, device: &WgslDevice) -> Box<dyn Job> {
    let model = Recurrent {
        lstm: LstmConfig::new(WIDTH, WIDTH, true).init(device),
        out: LinearConfig::new(WIDTH, CLASSES).init(device),
    };
    training_step(model, [batch, SEQUENCE, WIDTH], device, |model: &Recurrent<TrainBackend>, x| {
        let (outputs, _) = model.lstm.forward(x, None);
        let last = outputs.narrow(1, SEQUENCE - 1, 1);
        model.out.forward(last.flatten::<2>(1, 2))
    })
}

/// Returns the cost of [`lstm`].
pub fn lstm_cost(batch: usize) -> Cost {
    let (width, tokens) = (WIDTH as f64, (batch * SEQUENCE) as f64);
    // Four gates, each with a product of the input and one of the state.
    let weights = 8.0 * width * width;
    step_cost(tokens * weights, tokens * width, 40.0 * tokens * width + 4.0 * weights)
}
