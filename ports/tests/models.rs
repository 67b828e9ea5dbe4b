//! Models train as on a CPU: each loss differs by less than 1 %.

use std::sync::{Mutex, PoisonError};

use burn::nn::conv::{Conv1d, Conv1dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    BatchNorm, BatchNormConfig, Linear, LinearConfig, Lstm, LstmConfig, PaddingConfig1d,
};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::activation::gelu;
use program::train;

use crate::devices;

/// Tests run one at a time: they draw the first weights from one generator.
static SERIAL: Mutex<()> = Mutex::new(());

fn assert_follows(label: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() <= 0.01 * expected,
            "{label}: {found}, expected {expected}"
        );
    }
    let (first, last) = (expected[0], expected[expected.len() - 1]);
    assert!(last < 0.9 * first, "{label} learns: {expected:?}");
}

#[test]
fn digits_are_learned_as_on_the_cpu() {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let [found, expected] =
        devices().map(|device| train(device, 3, 512).expect("the dataset is complete"));
    assert_follows("digits", &found, &expected);
}

/// What the models have in common: a tensor `[8, 12, 16]` to one of the same shape.
trait Model: Module {
    fn new(device: &Device) -> Self;

    fn forward(&self, x: Tensor<3>) -> Tensor<3>;
}

/// Returns numbers from -1 to 1.
fn numbers(seed: usize, shape: [usize; 3], device: &Device) -> Tensor<3> {
    let element = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
    let values: Vec<f32> = (0..shape.iter().product()).map(element).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Returns the losses of steps on a device.
fn losses<M: Model>(device: Device) -> Vec<f32> {
    let cpu = Device::flex().autodiff();
    cpu.seed(3);
    let model = M::new(&cpu);
    // Parameters are drawn when they are first used.
    model.forward(numbers(0, [8, 12, 16], &cpu));
    let device = device.autodiff();
    let mut model = model.fork(&device);
    let mut optimizer = AdamConfig::new().init();
    let [x, y] = [1, 2].map(|seed| numbers(seed, [8, 12, 16], &device));
    let steps = (0..10).map(|_| {
        let loss = MseLoss::new().forward(model.forward(x.clone()), y.clone(), Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(5e-3, model.clone(), gradients);
        loss.inner().into_scalar::<f32>()
    });
    steps.collect()
}

fn follows<M: Model>() {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let [found, expected] = devices().map(losses::<M>);
    assert_follows(std::any::type_name::<M>(), &found, &expected);
}

#[derive(Module, Debug)]
struct Attention {
    encoder: TransformerEncoder,
    last: Linear,
}

impl Model for Attention {
    fn new(device: &Device) -> Self {
        let encoder = TransformerEncoderConfig::new(16, 32, 2, 2).with_dropout(0.0).init(device);
        Self { encoder, last: LinearConfig::new(16, 16).init(device) }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        self.last.forward(self.encoder.forward(TransformerEncoderInput::new(x)))
    }
}

#[test]
fn a_transformer_follows_the_cpu() {
    follows::<Attention>();
}

#[derive(Module, Debug)]
struct Recurrent {
    lstm: Lstm,
    last: Linear,
}

impl Model for Recurrent {
    fn new(device: &Device) -> Self {
        let lstm = LstmConfig::new(16, 24, true).init(device);
        Self { lstm, last: LinearConfig::new(24, 16).init(device) }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        self.last.forward(self.lstm.forward(x, None).0)
    }
}

#[test]
fn an_lstm_follows_the_cpu() {
    follows::<Recurrent>();
}

/// Convolutions with more padding on one side, batch norm and a transposed convolution.
#[derive(Module, Debug)]
struct Convolutions {
    first: Conv1d,
    norm: BatchNorm,
    last: ConvTranspose2d,
}

impl Model for Convolutions {
    fn new(device: &Device) -> Self {
        let padding = PaddingConfig1d::Explicit(1, 2);
        Self {
            first: Conv1dConfig::new(12, 24, 4).with_padding(padding).init(device),
            norm: BatchNormConfig::new(24).init(device),
            last: ConvTranspose2dConfig::new([24, 12], [1, 3]).with_padding([0, 1]).init(device),
        }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let x = gelu(self.norm.forward(self.first.forward(x)));
        self.last.forward(x.unsqueeze_dim(2)).squeeze_dim(2)
    }
}

#[test]
fn convolutions_follow_the_cpu() {
    follows::<Convolutions>();
}
