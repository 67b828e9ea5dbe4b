//! The network: two convolutions, max pooling and two linear layers, all of them Burn modules.
//!
//! The model is generic over Burn's backends and uses no files and no terminal.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, Initializer, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

/// Width and height of the images in pixels.
pub const SIDE: usize = 8;
/// Number of classes: the digits 0 to 9.
pub const CLASSES: usize = 10;

/// A small convolutional network for 8x8 images of digits.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    pool: MaxPool2d,
    dropout1: Dropout,
    fc1: Linear<B>,
    dropout2: Dropout,
    fc2: Linear<B>,
}

impl<B: Backend> Model<B> {
    /// Creates a model with random weights from the backend's random number generator. Seed the
    /// generator first to get reproducible weights.
    pub fn new(device: &B::Device) -> Self {
        // Three times the variance of Burn's default: training this small network then varies less
        // between seeds.
        let initializer = || Initializer::KaimingUniform { gain: 1.0, fan_out_only: false };
        let conv = |channels| {
            Conv2dConfig::new(channels, [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .with_initializer(initializer())
                .init(device)
        };
        let pooled_side = SIDE / 2;
        let model = Self {
            conv1: conv([1, 32]),
            conv2: conv([32, 64]),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            dropout1: DropoutConfig::new(0.25).init(),
            fc1: LinearConfig::new(64 * pooled_side * pooled_side, 128)
                .with_initializer(initializer())
                .init(device),
            dropout2: DropoutConfig::new(0.5).init(),
            fc2: LinearConfig::new(128, CLASSES).init(device),
        };
        // Burn initialises a parameter on first use. Counting the parameters initialises all of
        // them in field order, so that their values depend on the seed only.
        model.num_params();
        model
    }

    /// Computes the logits `[batch, 10]` of images `[batch, 1, 8, 8]` with pixels from 0 to 1.
    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = relu(self.conv1.forward(images));
        let x = relu(self.conv2.forward(x));
        let x = self.dropout1.forward(self.pool.forward(x));
        let x = relu(self.fc1.forward(x.flatten::<2>(1, 3)));
        self.fc2.forward(self.dropout2.forward(x))
    }

    /// Counts the images `[batch, 1, 8, 8]` whose predicted class is their label. Returns a tensor
    /// `[1]` on the device.
    pub fn count_correct(
        &self,
        images: Tensor<B, 4>,
        labels: Tensor<B, 1, Int>,
    ) -> Tensor<B, 1, Int> {
        let predictions = self.forward(images).argmax(1).flatten::<1>(0, 1);
        predictions.equal(labels).int().sum()
    }
}
