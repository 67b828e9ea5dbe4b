//! The time and the launches of a training step with the port's release of Burn, beside Burn 0.21, on the same device:
//! `BURN_WGSL_DEVICE=... cargo bench --bench step`.
//!
//! Both train with Adam, in turns: a CNN for images of 28 x 28, from the same weights, and a transformer encoder, whose
//! softmax, norms and attention have gradient kernels in burn-wgsl's autodiff.

use std::time::{Duration, Instant};

use burn_wgsl::{WgslDevice, profile};

/// Images per step.
const BATCH: usize = 32;
/// Steps of one turn, and turns. The first turns compile kernels.
const STEPS: usize = 4;
const TURNS: usize = 24;
const WARM_UP: usize = 8;

/// The input of the transformer: batch, positions, width.
const TOKENS: [usize; 3] = [8, 64, 128];
/// Its heads, layers, and the width between its linear layers.
const HEADS: usize = 4;
const LAYERS: usize = 2;
const HIDDEN: usize = 256;

/// A run that goes on: each call takes some steps, and returns the last loss.
type Run = Box<dyn FnMut(usize) -> f32>;

/// Returns pixels and labels.
fn samples() -> (Vec<f32>, Vec<i32>) {
    let pixel = |i: usize| ((i * 7919) % 251) as f32 / 251.0;
    ((0..BATCH * 28 * 28).map(pixel).collect(), (0..BATCH).map(|i| (i % 10) as i32).collect())
}

/// Returns the weights of a layer.
fn weights(seed: usize, count: usize, scale: f32) -> Vec<f32> {
    let weight = |i: usize| scale * (((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0);
    (0..count).map(weight).collect()
}

mod with_release {
    use burn::module::{Module, Param};
    use burn::nn::conv::{Conv2d, Conv2dConfig};
    use burn::nn::loss::CrossEntropyLossConfig;
    use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
    use burn::nn::transformer::{TransformerEncoderConfig, TransformerEncoderInput};
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::{AdamConfig, GradientsParams};
    use burn::prelude::{Device, Int, Tensor, TensorData};
    use burn::tensor::activation::relu;

    use super::{BATCH, HEADS, HIDDEN, LAYERS, Run, TOKENS, samples, weights};

    #[derive(Module, Debug)]
    struct Network {
        convolutions: [Conv2d; 2],
        pool: MaxPool2d,
        hidden: Linear,
        output: Linear,
    }

    impl Network {
        fn new(device: &Device) -> Self {
            let tensor = |seed, shape: [usize; 4], scale| {
                let values = weights(seed, shape.iter().product(), scale);
                Tensor::<4>::from_data(TensorData::new(values, shape), device)
            };
            let mut convolutions = [[1, 32], [32, 64]]
                .map(|channels| Conv2dConfig::new(channels, [3, 3]).with_bias(false).init(device));
            convolutions[0].weight = Param::from_tensor(tensor(1, [32, 1, 3, 3], 0.3));
            convolutions[1].weight = Param::from_tensor(tensor(2, [64, 32, 3, 3], 0.1));
            let linear = |seed, sizes: [usize; 2], scale| {
                let mut linear =
                    LinearConfig::new(sizes[0], sizes[1]).with_bias(false).init(device);
                let weight = tensor(seed, [1, 1, sizes[0], sizes[1]], scale);
                linear.weight = Param::from_tensor(weight.reshape(sizes));
                linear
            };
            Self {
                convolutions,
                pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
                hidden: linear(3, [64 * 12 * 12, 128], 0.02),
                output: linear(4, [128, 10], 0.1),
            }
        }

        fn forward(&self, images: Tensor<4>) -> Tensor<2> {
            let [first, second] = &self.convolutions;
            let x = self.pool.forward(relu(second.forward(relu(first.forward(images)))));
            self.output.forward(relu(self.hidden.forward(x.flatten::<2>(1, 3))))
        }
    }

    /// Trains a model by the loss of its only batch.
    fn training<M: Module + 'static>(
        device: Device,
        model: M,
        loss_of: impl Fn(&M) -> Tensor<1> + 'static,
    ) -> Run {
        let mut network = Some(model);
        let mut optimizer = AdamConfig::new().init();
        Box::new(move |steps| {
            let mut last = f32::NAN;
            for step in 0..steps {
                let model = network.take().expect("it was put back");
                let loss = loss_of(&model);
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                network = Some(optimizer.step(1e-3, model, gradients));
                if step + 1 == steps {
                    last = loss.inner().into_scalar::<f32>();
                }
            }
            device.sync().expect("the device works");
            last
        })
    }

    pub fn cnn() -> Run {
        let device = Device::default().autodiff();
        let network = Network::new(&device);
        let (pixels, labels) = samples();
        let images = Tensor::<4>::from_data(TensorData::new(pixels, [BATCH, 1, 28, 28]), &device);
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [BATCH]), &device);
        training(device.clone(), network, move |model| {
            let loss = CrossEntropyLossConfig::new().init(&device);
            loss.forward(model.forward(images.clone()), labels.clone())
        })
    }

    pub fn transformer() -> Run {
        let device = Device::default().autodiff();
        let config = TransformerEncoderConfig::new(TOKENS[2], HIDDEN, HEADS, LAYERS);
        let network = config.with_dropout(0.0).init(&device);
        let values = weights(5, TOKENS.iter().product(), 1.0);
        let x = Tensor::<3>::from_data(TensorData::new(values, TOKENS), &device);
        training(device, network, move |model| {
            let y = model.forward(TransformerEncoderInput::new(x.clone()));
            (y - x.clone().flip([2])).powi_scalar(2).mean()
        })
    }
}

mod with_021 {
    use burn_021 as burn;
    use burn_021::module::{AutodiffModule, Module, Param};
    use burn_021::nn::conv::{Conv2d, Conv2dConfig};
    use burn_021::nn::loss::CrossEntropyLossConfig;
    use burn_021::nn::pool::{MaxPool2d, MaxPool2dConfig};
    use burn_021::nn::transformer::{TransformerEncoderConfig, TransformerEncoderInput};
    use burn_021::nn::{Linear, LinearConfig};
    use burn_021::optim::{AdamConfig, GradientsParams, Optimizer};
    use burn_021::tensor::activation::relu;
    use burn_021::tensor::backend::Backend;
    use burn_021::tensor::{Int, Tensor, TensorData};
    use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

    use super::{BATCH, HEADS, HIDDEN, LAYERS, Run, TOKENS, samples, weights};

    type B = Autodiff<Wgsl>;

    #[derive(Module, Debug)]
    struct Network<B: Backend> {
        convolutions: [Conv2d<B>; 2],
        pool: MaxPool2d,
        hidden: Linear<B>,
        output: Linear<B>,
    }

    impl<B: Backend> Network<B> {
        fn new(device: &B::Device) -> Self {
            let tensor = |seed, shape: [usize; 4], scale| {
                let values = weights(seed, shape.iter().product(), scale);
                Tensor::<B, 4>::from_data(TensorData::new(values, shape), device)
            };
            let mut convolutions = [[1, 32], [32, 64]]
                .map(|channels| Conv2dConfig::new(channels, [3, 3]).with_bias(false).init(device));
            convolutions[0].weight = Param::from_tensor(tensor(1, [32, 1, 3, 3], 0.3));
            convolutions[1].weight = Param::from_tensor(tensor(2, [64, 32, 3, 3], 0.1));
            let linear = |seed, sizes: [usize; 2], scale| {
                let mut linear =
                    LinearConfig::new(sizes[0], sizes[1]).with_bias(false).init(device);
                let weight = tensor(seed, [1, 1, sizes[0], sizes[1]], scale);
                linear.weight = Param::from_tensor(weight.reshape(sizes));
                linear
            };
            Self {
                convolutions,
                pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
                hidden: linear(3, [64 * 12 * 12, 128], 0.02),
                output: linear(4, [128, 10], 0.1),
            }
        }

        fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
            let [first, second] = &self.convolutions;
            let x = self.pool.forward(relu(second.forward(relu(first.forward(images)))));
            self.output.forward(relu(self.hidden.forward(x.flatten::<2>(1, 3))))
        }
    }

    /// Trains a model by the loss of its only batch.
    fn training<M: AutodiffModule<B> + 'static>(
        device: WgslDevice,
        model: M,
        loss_of: impl Fn(&M) -> Tensor<B, 1> + 'static,
    ) -> Run {
        let mut network = Some(model);
        let mut optimizer = AdamConfig::new().init();
        Box::new(move |steps| {
            let mut last = f32::NAN;
            for step in 0..steps {
                let model = network.take().expect("it was put back");
                let loss = loss_of(&model);
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                network = Some(optimizer.step(1e-3, model, gradients));
                if step + 1 == steps {
                    last = loss.inner().into_scalar();
                }
            }
            B::sync(&device).expect("the device works");
            last
        })
    }

    pub fn cnn() -> Run {
        let device = WgslDevice::default();
        let network = Network::<B>::new(&device);
        let (pixels, labels) = samples();
        let images =
            Tensor::<B, 4>::from_data(TensorData::new(pixels, [BATCH, 1, 28, 28]), &device);
        let labels = Tensor::<B, 1, Int>::from_data(TensorData::new(labels, [BATCH]), &device);
        training(device, network, move |model| {
            let loss = CrossEntropyLossConfig::new().init(&device);
            loss.forward(model.forward(images.clone()), labels.clone())
        })
    }

    pub fn transformer() -> Run {
        let device = WgslDevice::default();
        let config = TransformerEncoderConfig::new(TOKENS[2], HIDDEN, HEADS, LAYERS);
        let network = config.with_dropout(0.0).init::<B>(&device);
        let values = weights(5, TOKENS.iter().product(), 1.0);
        let x = Tensor::<B, 3>::from_data(TensorData::new(values, TOKENS), &device);
        training(device, network, move |model| {
            let y = model.forward(TransformerEncoderInput::new(x.clone()));
            (y - x.clone().flip([2])).powi_scalar(2).mean()
        })
    }
}

/// Takes some steps. Returns the time of one, and the last loss.
fn turn(run: &mut Run) -> (Duration, f32) {
    let start = Instant::now();
    let loss = run(STEPS);
    (start.elapsed() / STEPS as u32, loss)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the launches of a step, and of how many kernels.
fn launches(run: &mut Run) -> (u64, usize) {
    let (_, profile) = profile(&WgslDevice::default(), || run(1)).expect("a GPU or its stand-in");
    (profile.kernels.iter().map(|kernel| kernel.calls).sum(), profile.kernels.len())
}

fn compare(model: &str, mut old: Run, mut new: Run) {
    let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for index in 0..TURNS {
        // Each is the first in half of the turns.
        let (a, b) = if index % 2 == 0 {
            let a = turn(&mut old);
            (a, turn(&mut new))
        } else {
            let b = turn(&mut new);
            (turn(&mut old), b)
        };
        if index < WARM_UP {
            continue;
        }
        let [a, b] = [(a, 0), (b, 1)].map(|((time, _), side)| {
            times[side].push(time.as_secs_f64() * 1e3);
            time.as_secs_f64()
        });
        ratios.push(b / a);
    }
    let losses = [turn(&mut old).1, turn(&mut new).1];
    let launches = [launches(&mut old), launches(&mut new)];
    let sides = ["Burn 0.21", "the port"];
    for (side, name) in sides.into_iter().enumerate() {
        let (time, loss) = (median(times[side].clone()), losses[side]);
        let (launches, kernels) = launches[side];
        println!(
            "{model}, {name}: {time:.2} ms and {launches} launches of {kernels} kernels a step, loss {loss}"
        );
    }
    let ratio = median(ratios.clone());
    println!(
        "{model}, the port / 0.21: {ratio:.3} (median of {} turns of {STEPS} steps)",
        ratios.len()
    );
}

fn main() {
    compare("CNN", with_021::cnn(), with_release::cnn());
    compare("transformer", with_021::transformer(), with_release::transformer());
}
