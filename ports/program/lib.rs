//! Trains a small CNN on handwritten digits with stock Burn.

use std::error::Error;
use std::io::Read;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::activation::relu;

/// Width and height of the images in pixels.
const SIDE: usize = 8;

/// An image and its label.
#[derive(Clone, Debug)]
pub struct Digit {
    pixels: [f32; SIDE * SIDE],
    label: i32,
}

/// Reads the dataset: a line has the label and 64 values from 0 to 16.
pub fn digits() -> std::io::Result<Vec<Digit>> {
    let mut text = String::new();
    let file = include_bytes!("../../examples/digits/digits.csv.gz");
    flate2::read::GzDecoder::new(&file[..]).read_to_string(&mut text)?;
    let digit = |line: &str| {
        let numbers: Vec<i32> =
            line.split(',').filter_map(|number| number.trim().parse().ok()).collect();
        let (&label, pixels) = numbers.split_last()?;
        let pixels: Vec<f32> = pixels.iter().map(|&pixel| pixel as f32 / 16.0).collect();
        Some(Digit { pixels: pixels.try_into().ok()?, label })
    };
    Ok(text.lines().filter_map(digit).collect())
}

/// Images `[batch, 1, 8, 8]` and labels `[batch]`.
#[derive(Clone, Debug)]
pub struct Batch {
    images: Tensor<4>,
    labels: Tensor<1, Int>,
}

/// Uploads digits as batches.
#[derive(Clone)]
struct DigitBatcher;

impl Batcher<Digit, Batch> for DigitBatcher {
    fn batch(&self, digits: Vec<Digit>, device: &Device) -> Batch {
        let pixels: Vec<f32> = digits.iter().flat_map(|digit| digit.pixels).collect();
        let labels: Vec<i32> = digits.iter().map(|digit| digit.label).collect();
        Batch {
            images: Tensor::from_data(
                TensorData::new(pixels, [digits.len(), 1, SIDE, SIDE]),
                device,
            ),
            labels: Tensor::from_data(TensorData::new(labels, [digits.len()]), device),
        }
    }
}

/// Returns a loader of batches in a random order, which is the same for each device.
pub fn loader(digits: Vec<Digit>, batch: usize, device: &Device) -> Arc<dyn DataLoader<Batch>> {
    let builder = DataLoaderBuilder::new(DigitBatcher).batch_size(batch).shuffle(1);
    builder.set_device(device.clone()).build(InMemDataset::new(digits))
}

/// Two convolutions, pooling and two linear layers.
#[derive(Module, Debug)]
pub struct Network {
    convolutions: [Conv2d; 2],
    pool: MaxPool2d,
    hidden: Linear,
    output: Linear,
}

impl Network {
    /// Creates a network with random weights of the device's generator.
    pub fn new(device: &Device) -> Self {
        let same = PaddingConfig2d::Explicit(1, 1, 1, 1);
        let convolution =
            |channels| Conv2dConfig::new(channels, [3, 3]).with_padding(same.clone()).init(device);
        Self {
            convolutions: [convolution([1, 32]), convolution([32, 64])],
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            hidden: LinearConfig::new(64 * 16, 128).init(device),
            output: LinearConfig::new(128, 10).init(device),
        }
    }

    /// Computes the logits `[batch, 10]` of images `[batch, 1, 8, 8]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let [first, second] = &self.convolutions;
        let x = self.pool.forward(relu(second.forward(relu(first.forward(images)))));
        self.output.forward(relu(self.hidden.forward(x.flatten::<2>(1, 3))))
    }
}

/// Trains on a device. Returns the mean loss of each epoch. The first weights are those of Burn's
/// CPU backend, for each device.
pub fn train(device: Device, epochs: usize, images: usize) -> Result<Vec<f32>, Box<dyn Error>> {
    let mut digits = digits()?;
    digits.truncate(images);
    let cpu = Device::flex().autodiff();
    cpu.seed(1);
    let device = device.autodiff();
    let network = Network::new(&cpu);
    // Parameters are drawn when they are first used.
    network.forward(Tensor::zeros([1, 1, SIDE, SIDE], &cpu));
    let mut network = network.fork(&device);
    let mut optimizer = AdamConfig::new().init();
    let loader = loader(digits, 64, &device);
    let mut means = Vec::new();
    for _ in 0..epochs {
        let mut losses = Vec::new();
        for batch in loader.iter() {
            let batch = batch?;
            let loss = CrossEntropyLossConfig::new().init(&device);
            let loss = loss.forward(network.forward(batch.images), batch.labels);
            let gradients = GradientsParams::from_grads(loss.backward(), &network);
            losses.push(loss.inner());
            network = optimizer.step(1e-3, network, gradients);
        }
        means.push(Tensor::cat(losses, 0).mean().into_scalar::<f32>());
    }
    Ok(means)
}
