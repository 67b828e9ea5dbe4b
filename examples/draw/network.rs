//! A small network that learns a picture: from the position of a pixel to its colour.

use burn::module::{AutodiffModule, Module};
use burn::nn::{Linear, LinearConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::{gelu, sigmoid};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

type B = Autodiff<Wgsl>;

/// The side of the picture in pixels.
pub const SIDE: usize = 96;
/// Sines and cosines of each coordinate, with doubling frequencies.
const FREQUENCIES: usize = 6;
const WIDTH: usize = 64;
const LEARNING_RATE: f64 = 5e-3;

#[derive(Module, Debug)]
struct Network<B: Backend> {
    first: Linear<B>,
    middle: Linear<B>,
    last: Linear<B>,
}

impl<B: Backend> Network<B> {
    fn new(device: &B::Device) -> Self {
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        Self {
            first: linear(4 * FREQUENCIES, WIDTH),
            middle: linear(WIDTH, WIDTH),
            last: linear(WIDTH, 3),
        }
    }

    fn forward(&self, positions: Tensor<B, 2>) -> Tensor<B, 2> {
        let x = gelu(self.first.forward(positions));
        sigmoid(self.last.forward(gelu(self.middle.forward(x))))
    }
}

/// The network, its optimizer and what it learns.
pub struct Painter {
    network: Network<B>,
    optimizer: OptimizerAdaptor<Adam, Network<B>, B>,
    positions: Tensor<B, 2>,
    picture: Tensor<B, 2>,
}

impl Painter {
    /// Creates a network that knows nothing.
    pub fn new(device: &WgslDevice) -> Self {
        B::seed(device, 1);
        let pixels = || (0..SIDE * SIDE).map(|i| (i % SIDE, i / SIDE));
        let coordinate = |at: usize| 2.0 * (at as f32 + 0.5) / SIDE as f32 - 1.0;
        let positions: Vec<f32> =
            pixels().flat_map(|(x, y)| waves(coordinate(x), coordinate(y))).collect();
        let picture: Vec<f32> =
            pixels().flat_map(|(x, y)| sunset(coordinate(x), coordinate(y))).collect();
        let tensor = |values, width| {
            Tensor::from_data(TensorData::new(values, [SIDE * SIDE, width]), device)
        };
        Self {
            network: Network::new(device),
            optimizer: AdamConfig::new().init(),
            positions: tensor(positions, 4 * FREQUENCIES),
            picture: tensor(picture, 3),
        }
    }

    /// Trains on the whole picture once. Returns the loss, which is not read back.
    pub fn train(&mut self) -> Tensor<Wgsl, 1> {
        let difference = self.network.forward(self.positions.clone()) - self.picture.clone();
        let loss = difference.powi_scalar(2).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &self.network);
        self.network = self.optimizer.step(LEARNING_RATE, self.network.clone(), gradients);
        loss.inner()
    }

    /// Returns the picture as the network knows it: `[height, width, 3]`.
    pub fn paint(&self) -> Tensor<Wgsl, 3> {
        let colors = self.network.valid().forward(self.positions.clone().inner());
        colors.reshape([SIDE, SIDE, 3])
    }

    /// Returns the picture to learn: `[height, width, 3]`.
    pub fn picture(&self) -> Tensor<Wgsl, 3> {
        self.picture.clone().inner().reshape([SIDE, SIDE, 3])
    }
}

/// Returns sines and cosines of a position.
fn waves(x: f32, y: f32) -> impl Iterator<Item = f32> {
    (0..FREQUENCIES).flat_map(move |octave| {
        let frequency = (1 << octave) as f32;
        let [x, y] = [x, y].map(|at| at * frequency);
        [x.sin(), x.cos(), y.sin(), y.cos()]
    })
}

/// The colour of a picture of the sun over water. Coordinates are from -1 to 1.
fn sunset(x: f32, y: f32) -> [f32; 3] {
    let mix = |a: [f32; 3], b: [f32; 3], t: f32| [0, 1, 2].map(|c| a[c] + (b[c] - a[c]) * t);
    let horizon = 0.25;
    let from_sun = |y: f32| (x * x + (y - 0.05) * (y - 0.05)).sqrt();
    let sky =
        |y: f32| mix([0.10, 0.12, 0.35], [0.98, 0.55, 0.25], ((y + 1.0) / 1.25).clamp(0.0, 1.0));
    let sun = [1.0, 0.93, 0.62];
    if y < horizon {
        return if from_sun(y) < 0.38 { sun } else { sky(y) };
    }
    let ripple = 0.5 + 0.5 * (60.0 * y + 4.0 * (7.0 * x).sin()).sin();
    let mirrored = 2.0 * horizon - y;
    let reflected = if from_sun(mirrored) < 0.42 { sun } else { sky(mirrored) };
    mix([0.04, 0.10, 0.22], reflected, 0.25 + 0.5 * ripple)
}
