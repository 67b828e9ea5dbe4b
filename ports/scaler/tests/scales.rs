//! Mixed precision with loss scaling, in a program of the port's release of Burn.

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::activation::gelu;
use burn_wgsl_scaler::{GradScaler, GradScalerConfig, Precision, autocast};

fn device() -> Device {
    Device::default().autodiff()
}

fn config(scale: f32) -> GradScalerConfig {
    GradScalerConfig { initial_scale: scale, growth_interval: 2, ..GradScalerConfig::default() }
}

/// A layer whose weights are 1.
fn layer(device: &Device) -> Linear {
    let mut layer = LinearConfig::new(2, 2).with_bias(false).init(device);
    layer.weight = Param::from_tensor(Tensor::ones([2, 2], device));
    layer
}

fn weights(layer: &Linear) -> Vec<f32> {
    layer.weight.val().inner().into_data().try_to_vec().expect("floats")
}

/// Takes a step whose gradients are 2 * `x`, before they are scaled.
fn step(
    scaler: &GradScaler,
    optimizer: &mut burn_wgsl_scaler::ScaledOptimizer,
    layer: Linear,
    x: f32,
) -> Linear {
    let device = device();
    let loss = layer.forward(Tensor::<2>::full([2, 2], x, &device)).sum();
    let gradients = GradientsParams::from_grads(scaler.scale(loss).backward(), &layer);
    optimizer.step(0.25, layer, gradients)
}

#[test]
fn steps_are_unscaled_and_those_with_infinities_are_skipped() {
    let device = device();
    let scaler = GradScaler::new(config(1024.0), &device).expect("burn-wgsl's device");
    let mut optimizer = scaler.wrap(SgdConfig::new().init());
    let mut layer = step(&scaler, &mut optimizer, layer(&device), 1.0);
    assert_eq!(weights(&layer), [0.5; 4]);
    layer = step(&scaler, &mut optimizer, layer, f32::INFINITY);
    assert_eq!(weights(&layer), [0.5; 4]);
    assert_eq!((scaler.state().scale, scaler.state().skipped_steps), (512.0, 1));
    for _ in 0..2 {
        layer = step(&scaler, &mut optimizer, layer, 0.5);
    }
    assert_eq!(weights(&layer), [0.0; 4]);
    assert_eq!(scaler.state().scale, 1024.0);
    assert!(layer.weight.val().is_require_grad());

    let other = GradScaler::new(config(2.0), &device).expect("burn-wgsl's device");
    other.load_state(scaler.state().to_string().parse().expect("the text of a state"));
    assert_eq!(other.state(), scaler.state());
}

#[test]
fn the_norm_of_all_gradients_is_limited_after_scaling() {
    let device = device();
    let scaler = GradScaler::new(config(256.0), &device).expect("burn-wgsl's device");
    // Four gradients of 2 have the norm 4.
    let mut optimizer = scaler.wrap(SgdConfig::new().init()).with_max_norm(2.0);
    let layer = step(&scaler, &mut optimizer, layer(&device), 1.0);
    let expected = 1.0 - 0.25 * 1.0;
    assert!(weights(&layer).iter().all(|weight| (weight - expected).abs() < 1e-5), "{layer:?}");
}

#[test]
fn a_frozen_parameter_and_one_without_a_gradient_stay() {
    let device = device();
    let scaler = GradScaler::new(config(64.0), &device).expect("burn-wgsl's device");
    let mut optimizer = scaler.wrap(SgdConfig::new().init());
    let [frozen, mut trained] = [layer(&device).no_grad(), layer(&device)];
    let nothing = optimizer.step(0.25, trained.clone(), GradientsParams::new());
    assert_eq!(weights(&nothing), [1.0; 4]);
    let x = Tensor::<2>::ones([2, 2], &device);
    let loss = trained.forward(frozen.forward(x)).sum();
    let module = [frozen, trained];
    let gradients = GradientsParams::from_grads(scaler.scale(loss).backward(), &module);
    let [frozen, after] = optimizer.step(0.25, module, gradients);
    trained = after;
    assert_eq!((weights(&frozen), weights(&trained)), (vec![1.0; 4], vec![0.0; 4]));
    assert!(!frozen.weight.val().is_require_grad() && trained.weight.val().is_require_grad());
    assert_eq!(scaler.state().skipped_steps, 0);
}

#[test]
fn a_disabled_scaler_changes_nothing() {
    let device = device();
    let config = GradScalerConfig { enabled: false, ..config(1024.0) };
    let scaler = GradScaler::new(config, &device).expect("burn-wgsl's device");
    let mut optimizer = scaler.wrap(SgdConfig::new().init());
    let layer = step(&scaler, &mut optimizer, layer(&device), 1.0);
    assert_eq!(weights(&layer), [0.5; 4]);
    assert_eq!((scaler.state().scale, scaler.state().good_steps), (1024.0, 0));
}

#[test]
fn parameters_keep_their_strategy_of_checkpointing() {
    let device = device().gradient_checkpointing();
    let scaler = GradScaler::new(config(64.0), &device).expect("burn-wgsl's device");
    let mut optimizer = scaler.wrap(SgdConfig::new().init());
    let mut layer = layer(&device);
    for _ in 0..2 {
        let loss = layer.forward(Tensor::<2>::ones([2, 2], &device)).sum();
        let gradients = GradientsParams::from_grads(scaler.scale(loss).backward(), &layer);
        layer = optimizer.step(0.25, layer, gradients);
    }
    assert_eq!(weights(&layer), [0.0; 4]);
}

#[test]
#[should_panic(expected = "must be a finite number above 0")]
fn a_norm_of_zero_is_refused() {
    let scaler = GradScaler::new(config(2.0), &device()).expect("burn-wgsl's device");
    let _ = scaler.wrap(SgdConfig::new().init()).with_max_norm(0.0);
}

/// Products large enough that autocast computes them in f16.
#[derive(Module, Debug)]
struct Network {
    layers: [Linear; 3],
}

impl Network {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let [first, second, third] = &self.layers;
        third.forward(gelu(second.forward(gelu(first.forward(x)))))
    }
}

#[test]
fn a_network_learns_under_autocast_as_in_f32() {
    let device = device();
    let element = |i: usize| ((i * 7919) % 2003) as f32 / 1001.0 - 1.0;
    let values: Vec<f32> = (0..512 * 768).map(element).collect();
    let x = Tensor::<2>::from_data(TensorData::new(values, [512, 768]), &device);
    // The network finds 16 of its inputs.
    let y = x.clone().narrow(1, 0, 16);
    let learn = |precision: Precision| {
        device.seed(4);
        let layers = [[768, 768], [768, 768], [768, 16]]
            .map(|[from, to]| LinearConfig::new(from, to).init(&device));
        let mut network = Network { layers };
        let scaler = GradScaler::new(config(65536.0), &device).expect("burn-wgsl's device");
        let mut optimizer = scaler.wrap(AdamConfig::new().init());
        let mut losses = Vec::new();
        for _ in 0..12 {
            let scope = autocast(&device, precision).expect("burn-wgsl's device");
            let loss = (network.forward(x.clone()) - y.clone()).powi_scalar(2).mean();
            losses.push(loss.clone().inner().into_scalar::<f32>());
            let gradients = GradientsParams::from_grads(scaler.scale(loss).backward(), &network);
            drop(scope);
            network = optimizer.step(1e-3, network, gradients);
        }
        assert_eq!(network.layers[0].weight.val().dtype(), burn::tensor::DType::F32);
        losses
    };
    let [full, half] = [Precision::F32, Precision::F16].map(learn);
    assert!(full[11] < 0.8 * full[0], "{full:?}");
    assert_ne!(half, full);
    for (half, full) in half.iter().zip(&full) {
        assert!((half - full).abs() < 0.02 * full, "{half}, in f32 {full}");
    }
}
