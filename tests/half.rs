//! Devices whose default float type is f16: creation, ops and training.
//!
//! These tests have their own process, because the default type can be set only once.

mod common;

use std::sync::{Mutex, PoisonError};

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{self, loss};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{
    Bool, DType, Distribution, Int, Tensor, TensorData, activation, f16, set_default_dtypes,
};
use burn_wgsl::{Wgsl, WgslDevice};
use common::devices;

/// Runs `f` on every device with f16 as the default float type and a freshly seeded random stream.
fn for_each_f16_device(f: impl Fn(&WgslDevice)) {
    static IS_SET: Mutex<bool> = Mutex::new(false);
    let mut is_set = IS_SET.lock().unwrap_or_else(PoisonError::into_inner);
    for device in devices() {
        let settings = set_default_dtypes::<Wgsl>(&device, DType::F16, DType::I32);
        assert!(settings.is_err() == *is_set, "{device}: {settings:?}");
    }
    *is_set = true;
    for device in devices() {
        Wgsl::seed(&device, 16);
        f(&device);
    }
}

#[test]
fn created_and_computed_tensors_are_f16() {
    for_each_f16_device(|device| {
        let data = || TensorData::from([[1.0f64, -2.5], [0.1, 4.0]]);
        let x = Tensor::<Wgsl, 2>::from_data(data(), device);
        let ints = Tensor::<Wgsl, 2, Int>::from_data([[1i64, 0], [1, 1]], device);
        let tensors = [
            Tensor::zeros([2, 3], device),
            Tensor::ones([2, 3], device),
            Tensor::full([2, 3], 2.5, device),
            Tensor::eye(3, device),
            Tensor::random([8, 8], Distribution::Normal(0.0, 1.0), device),
            Tensor::random([8, 8], Distribution::Bernoulli(0.5), device),
            Tensor::<Wgsl, 2>::from_data([[true, false]], device),
            Tensor::<Wgsl, 2, Bool>::from_data([[true, false]], device).float(),
            Tensor::<Wgsl, 1, Int>::arange(0..6, device).float().reshape([2, 3]),
            ints.clone().float(),
            x.clone().matmul(x.clone()),
            x.clone().exp().sum_dim(1),
            x.clone().select(0, Tensor::from_data([1, 0], device)),
            x.clone().mask_fill(ints.bool(), 0.5),
            x.clone().var(1),
            x.clone().cast(DType::F32).cast(DType::F16),
            activation::softmax(x.clone(), 1),
        ];
        for (i, tensor) in tensors.into_iter().enumerate() {
            let types = (tensor.dtype(), tensor.into_data().dtype);
            assert_eq!(types, (DType::F16, DType::F16), "tensor {i} on {device}");
        }
        let elements: Vec<f16> = x.clone().into_data().to_vec().expect("the elements are f16");
        assert_eq!(elements, [1.0, -2.5, 0.1, 4.0].map(f16::from_f64));
        assert_eq!(x.clone().max().into_scalar(), 4.0);
        assert_eq!(x.argmax(1).into_data().dtype, DType::I32);
        let single = Tensor::<Wgsl, 2>::from_data(data(), (device, DType::F32));
        assert_eq!(single.exp().into_data().dtype, DType::F32);
    });
}

/// Collects the element types of a module's parameters and of their gradients.
struct DTypes<'a> {
    grads: &'a GradientsParams,
    dtypes: Vec<DType>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for DTypes<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let grad = self.grads.get::<B::InnerBackend, D>(param.id);
        // The running means and variances of a batch norm have no gradient.
        self.dtypes.extend(grad.map(|grad| grad.dtype()));
        self.dtypes.push(param.val().dtype());
    }
}

#[derive(Module, Debug)]
struct Model<B: Backend> {
    conv: nn::conv::Conv2d<B>,
    norm: nn::BatchNorm<B>,
    linear: nn::Linear<B>,
}

/// Trains a small model and returns its first and last loss.
fn train<B: AutodiffBackend<Device = WgslDevice>>(device: &WgslDevice) -> (f32, f32) {
    let mut model = Model::<B> {
        conv: nn::conv::Conv2dConfig::new([1, 4], [3, 3]).init(device),
        norm: nn::BatchNormConfig::new(4).init(device),
        linear: nn::LinearConfig::new(4 * 3 * 3, 3).init(device),
    };
    // Three classes: vertical stripes, horizontal stripes and a chequerboard.
    let pixels = |i: usize, y: usize, x: usize| match i % 3 {
        0 => (x % 2) as f32,
        1 => (y % 2) as f32,
        _ => ((x + y) % 2) as f32,
    };
    let images: Vec<f32> =
        (0..12 * 64).map(|i| pixels(i / 64, i / 8 % 8, i % 8) + 0.01 * (i % 7) as f32).collect();
    let images = Tensor::<B, 4>::from_data(TensorData::new(images, [12, 1, 8, 8]), device);
    let labels: Vec<i64> = (0..12).map(|i| i % 3).collect();
    let labels = Tensor::<B, 1, Int>::from_data(labels.as_slice(), device);
    let mut optimizer = SgdConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..20 {
        let x = activation::relu(model.norm.forward(model.conv.forward(images.clone())));
        let x = burn::tensor::module::max_pool2d(x, [2, 2], [2, 2], [0, 0], [1, 1], false);
        let x = model.linear.forward(x.flatten::<2>(1, 3));
        let loss = loss::CrossEntropyLossConfig::new().init(device).forward(x, labels.clone());
        losses.push(loss.clone().into_data().iter::<f32>().sum());
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let mut collected = DTypes { grads: &grads, dtypes: Vec::new() };
        <Model<B> as Module<B>>::visit(&model, &mut collected);
        assert_eq!(collected.dtypes, [DType::F16; 14]);
        model = optimizer.step(0.1, model, grads);
    }
    (losses[0], losses[19])
}

#[test]
fn a_model_trains_in_f16() {
    for_each_f16_device(|device| {
        for (first, last) in [
            train::<Autodiff<Wgsl>>(device),
            train::<Autodiff<Wgsl, BalancedCheckpointing>>(device),
        ] {
            assert!(last < 0.3 * first, "the loss goes from {first} to {last} on {device}");
        }
    });
}

/// The scale, 65536, does not fit the default type.
#[cfg(feature = "train")]
#[test]
fn a_scaler_has_its_own_types() {
    use burn_wgsl::Autodiff;
    use burn_wgsl::scaler::{GradScalerConfig, ScalerState};

    type B = Autodiff<Wgsl>;

    for_each_f16_device(|device| {
        let scaler = GradScalerConfig::default().init(device);
        let mut optimizer = scaler.wrap(SgdConfig::new().init());
        let mut layer = nn::LinearConfig::new(4, 1).init::<B>(device);
        for factor in [1e-3, f32::INFINITY] {
            let x = Tensor::<B, 2>::ones([2, 4], device);
            // The scale is the gradient of the loss, and too large for f16.
            let loss = layer.forward(x).mean().cast(DType::F32) * factor;
            let loss = scaler.scale(loss);
            let grads = GradientsParams::from_grads(loss.backward(), &layer);
            layer = optimizer.step(0.1, layer, grads);
        }
        let expected = ScalerState { scale: 32768.0, good_steps: 0, skipped_steps: 1 };
        assert_eq!(scaler.state(), expected, "{device}");
        let weight = layer.weight.val();
        assert_eq!(weight.dtype(), DType::F16, "{device}");
        let weights = weight.into_data();
        assert!(weights.iter::<f32>().all(f32::is_finite), "{device}");
    });
}
