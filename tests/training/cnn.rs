//! A small network with numbers that are equal on all devices.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

type B = Autodiff<Wgsl>;

#[derive(Module, Debug)]
pub struct Cnn<B: Backend> {
    pub conv: Conv2d<B>,
    pub hidden: Linear<B>,
    pub unused: Linear<B>,
    pub output: Linear<B>,
}

impl<B: Backend<Device = WgslDevice>> Cnn<B> {
    pub fn new(device: &WgslDevice) -> Self {
        Self {
            conv: Conv2dConfig::new([1, 4], [3, 3]).init(device),
            hidden: LinearConfig::new(4 * 6 * 6, 16).init(device),
            unused: LinearConfig::new(3, 2).init(device),
            output: LinearConfig::new(16, 3).init(device),
        }
    }

    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = self.conv.forward(x).tanh().flatten(1, 3);
        self.output.forward(self.hidden.forward(x).tanh())
    }
}

/// Numbers from -1 to 1 that depend on their position and the seed.
pub fn numbers<const D: usize>(
    seed: usize,
    shape: [usize; D],
    device: &WgslDevice,
) -> Tensor<B, D> {
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
    let values: Vec<f32> = (0..shape.iter().product()).map(number).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Replaces parameters by numbers that depend on the seed, and on their place.
pub struct Fill(pub usize);

impl ModuleMapper<B> for Fill {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        self.0 += 1;
        let seed = self.0;
        param.map(|old| (numbers(seed, old.dims(), &old.device()) * 0.3).require_grad())
    }
}
