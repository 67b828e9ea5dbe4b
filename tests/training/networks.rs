//! Networks that workers train, and their training.

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, activation};
use burn_wgsl::parallel::{ParallelError, Rest, Worker};
use burn_wgsl::train::{MeanGradients, Sampler, Sequential};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::cnn::{Cnn, Fill, numbers};

type B = Autodiff<Wgsl>;

/// The samples of a batch of all workers.
const BATCH: usize = 64;
const STEPS: usize = 10;

/// A network that makes three numbers of each image.
pub trait Network: AutodiffModule<B> {
    /// Steps of this size change the weights, and stay stable.
    const LEARNING_RATE: f64;

    fn new(device: &WgslDevice) -> Self;

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2>;
}

impl Network for Cnn<B> {
    const LEARNING_RATE: f64 = 0.5;

    fn new(device: &WgslDevice) -> Self {
        Self::new(device)
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        self.forward(images)
    }
}

#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    hidden: Vec<Linear<B>>,
    output: Linear<B>,
}

impl Network for Mlp<B> {
    const LEARNING_RATE: f64 = 0.1;

    fn new(device: &WgslDevice) -> Self {
        let hidden = [(64, 32), (32, 24)].map(|(x, y)| LinearConfig::new(x, y).init(device));
        Self { hidden: hidden.to_vec(), output: LinearConfig::new(24, 3).init(device) }
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = images.flatten(1, 3);
        let x = self.hidden.iter().fold(x, |x, layer| activation::gelu(layer.forward(x)));
        self.output.forward(x)
    }
}

/// A transformer that reads the rows of an image as tokens.
#[derive(Module, Debug)]
pub struct Gpt<B: Backend> {
    tokens: Embedding<B>,
    positions: Embedding<B>,
    layers: TransformerEncoder<B>,
    output: Linear<B>,
}

impl Network for Gpt<B> {
    const LEARNING_RATE: f64 = 0.05;

    fn new(device: &WgslDevice) -> Self {
        let layers = TransformerEncoderConfig::new(16, 32, 2, 2);
        Self {
            tokens: EmbeddingConfig::new(11, 16).init(device),
            positions: EmbeddingConfig::new(8, 16).init(device),
            layers: layers.with_dropout(0.0).with_norm_first(true).init(device),
            output: LinearConfig::new(16, 3).init(device),
        }
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let (samples, device) = (images.dims()[0], images.device());
        // From -1 to 1 to one of eleven tokens.
        let rows = images.slice_dim(3, 0..1).reshape([samples, 8]);
        let tokens = (rows * 5.0 + 5.0).round().int();
        let positions = Tensor::<B, 1, Int>::arange(0..8, &device).unsqueeze();
        let x = self.tokens.forward(tokens) + self.positions.forward(positions);
        let mask = generate_autoregressive_mask(samples, 8, &device);
        let x = self.layers.forward(TransformerEncoderInput::new(x).mask_attn(mask));
        self.output.forward(x.slice_dim(1, 7..8).squeeze_dim(1))
    }
}

/// How gradients are exchanged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exchanged {
    /// While the backward pass computes the others.
    Watched,
    /// After it, and after this many passes.
    After(usize),
}

/// Trains a network for ten steps, of which the last has a smaller batch. Returns its weights.
pub fn train<N: Network>(worker: &Worker, exchanged: Exchanged) -> Result<Vec<f32>, ParallelError> {
    let device = worker.device();
    // Each worker has a network of its own until the first one's is sent.
    let model = N::new(&device).map(&mut Fill(50 * worker.rank()));
    let mut model: N = worker.broadcast(model)?;
    let before = weights(&model);
    let mut optimizer = SgdConfig::new().init();
    let part = worker.part(Sequential, BATCH, Rest::Uneven)?;
    let own = worker.batch_size(BATCH)?;
    for step in 0..STEPS {
        let images = numbers(step, [BATCH, 1, 8, 8], &device);
        let labels = numbers(step + 100, [BATCH, 3], &device);
        let items = if step + 1 == STEPS { 37 } else { BATCH };
        let order = part.epoch(items, own, 0);
        let mut sum = MeanGradients::new();
        let passes = if let Exchanged::After(passes) = exchanged { passes } else { 1 };
        for items in order.chunks(order.len().div_ceil(passes)) {
            let rows = items[0]..items[0] + items.len();
            let used = match exchanged {
                Exchanged::Watched => worker.watch(&model, order.len())?,
                Exchanged::After(_) => model.clone(),
            };
            let found = used.forward(images.clone().slice_dim(0, rows.clone()));
            let loss = (found - labels.clone().slice_dim(0, rows)).powi_scalar(2).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            sum.add(&model, gradients, items.len());
        }
        let gradients = worker.mean(sum.take(), &model, order.len())?;
        model = optimizer.step(N::LEARNING_RATE, model, gradients);
    }
    assert!(worker.are_equal::<B, _>(&model)?, "{worker:?} has other weights than others");
    let after = weights(&model);
    assert!(worst(&before, &after) > 1e-2, "it learns");
    Ok(after)
}

/// Returns the numbers of all parameters.
pub fn weights<N: Network>(model: &N) -> Vec<f32> {
    let mut weights = Weights(Vec::new());
    model.visit(&mut weights);
    weights.0
}

/// Returns the largest difference of two lists of weights.
pub fn worst(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    // NaN is not 0.
    let difference = |(a, b): (&f32, &f32)| if a == b { 0.0 } else { (a - b).abs() };
    let differences = one.iter().zip(other).map(difference);
    differences.fold(0.0, |worst, next| if next <= worst { worst } else { next })
}

/// The numbers of all parameters.
struct Weights(Vec<f32>);

impl ModuleVisitor<B> for Weights {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let data = param.val().into_data();
        self.0.extend(data.iter::<f32>());
    }
}
