//! What burn-train needs of a model: batches, a training step and an inference step.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use burn_wgsl::scaler::GradScaler;
use burn_wgsl::{Autodiff, Precision, Wgsl, autocast};
use digits::data::Samples;
use digits::model::{Model, SIDE};
use digits::tensors::int_tensor;

/// An image and its label.
#[derive(Clone, Debug)]
pub struct Digit {
    /// 64 values from 0 to 1, in row-major order.
    pixels: Vec<f32>,
    /// From 0 to 9.
    label: i32,
}

/// Returns the samples one by one.
pub fn digits_of(samples: &Samples) -> Vec<Digit> {
    let images = samples.pixels.chunks(SIDE * SIDE);
    images
        .zip(&samples.labels)
        .map(|(pixels, &label)| Digit { pixels: pixels.to_vec(), label })
        .collect()
}

/// Images `[batch, 1, 8, 8]` and labels `[batch]`.
#[derive(Clone, Debug)]
pub struct Batch<B: Backend> {
    images: Tensor<B, 4>,
    labels: Tensor<B, 1, Int>,
}

/// Uploads digits as batches.
#[derive(Clone)]
pub struct DigitBatcher;

impl<B: Backend> Batcher<B, Digit, Batch<B>> for DigitBatcher {
    fn batch(&self, digits: Vec<Digit>, device: &B::Device) -> Batch<B> {
        let pixels: Vec<f32> =
            digits.iter().flat_map(|digit| digit.pixels.iter().copied()).collect();
        let pixels = TensorData::new(pixels, [digits.len(), 1, SIDE, SIDE]);
        let labels = digits.iter().map(|digit| digit.label).collect();
        Batch { images: Tensor::from_data(pixels, device), labels: int_tensor(labels, device) }
    }
}

/// How a [`Classifier`] trains.
#[derive(Debug, Clone)]
pub struct Mixed {
    /// The type of its products.
    pub precision: Precision,
    /// Scales its losses, for f16.
    pub scaler: Option<GradScaler>,
}

/// The network of the digits example, with the steps of burn-train.
#[derive(Module, Debug)]
pub struct Classifier<B: Backend> {
    model: Model<B>,
    // No part of a checkpoint.
    #[module(skip)]
    mixed: Mixed,
}

impl<B: Backend> Classifier<B> {
    pub fn new(model: Model<B>, mixed: Mixed) -> Self {
        Self { model, mixed }
    }

    pub fn into_model(self) -> Model<B> {
        self.model
    }

    fn classify(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        let logits = self.model.forward(batch.images);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        let loss = loss.forward(logits.clone(), batch.labels.clone());
        ClassificationOutput::new(loss, logits, batch.labels)
    }
}

impl TrainStep for Classifier<Autodiff<Wgsl>> {
    type Input = Batch<Autodiff<Wgsl>>;
    type Output = ClassificationOutput<Autodiff<Wgsl>>;

    fn step(&self, batch: Self::Input) -> TrainOutput<Self::Output> {
        let Mixed { precision, scaler } = &self.mixed;
        let _scope = autocast(&batch.images.device(), *precision);
        let output = self.classify(batch);
        let loss = output.loss.clone();
        let loss = match scaler {
            Some(scaler) => scaler.scale(loss),
            None => loss,
        };
        TrainOutput::new(self, loss.backward(), output)
    }
}

impl InferenceStep for Classifier<Wgsl> {
    type Input = Batch<Wgsl>;
    type Output = ClassificationOutput<Wgsl>;

    fn step(&self, batch: Self::Input) -> Self::Output {
        let _scope = autocast(&batch.images.device(), self.mixed.precision);
        self.classify(batch)
    }
}
