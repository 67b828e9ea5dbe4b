//! The network: two convolutions, one pooling step and two linear layers, all of them stock Burn modules.
//!
//! Nothing here knows a device, a file or a terminal, so the same model serves wherever Burn runs.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, Initializer, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

/// Images are this many pixels high and wide.
pub const SIDE: usize = 8;
/// The digits 0 to 9.
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
    /// A model with fresh weights, drawn from the backend's random numbers: seed them first for a repeatable one.
    pub fn new(device: &B::Device) -> Self {
        // Three times the variance of Burn's default: small as the network is, it learns more evenly over seeds.
        let weights = || Initializer::KaimingUniform { gain: 1.0, fan_out_only: false };
        let conv = |channels| {
            Conv2dConfig::new(channels, [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .with_initializer(weights())
                .init(device)
        };
        let pooled = SIDE / 2;
        let model = Self {
            conv1: conv([1, 32]),
            conv2: conv([32, 64]),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            dropout1: DropoutConfig::new(0.25).init(),
            fc1: LinearConfig::new(64 * pooled * pooled, 128)
                .with_initializer(weights())
                .init(device),
            dropout2: DropoutConfig::new(0.5).init(),
            fc2: LinearConfig::new(128, CLASSES).init(device),
        };
        // Burn draws a weight when it is first looked at. Counting looks at all of them, in the order of the fields,
        // so that the seed gives the same weights whatever is done with the model first.
        model.num_params();
        model
    }

    /// Scores (logits) `[batch, 10]` for images `[batch, 1, 8, 8]` with pixels between 0 and 1.
    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = relu(self.conv1.forward(images));
        let x = relu(self.conv2.forward(x));
        let x = self.dropout1.forward(self.pool.forward(x));
        let x = relu(self.fc1.forward(x.flatten::<2>(1, 3)));
        self.fc2.forward(self.dropout2.forward(x))
    }

    /// How many of the images are recognised: one number, still on the device.
    pub fn correct(&self, images: Tensor<B, 4>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1, Int> {
        let guesses = self.forward(images).argmax(1).flatten::<1>(0, 1);
        guesses.equal(labels).int().sum()
    }
}
