//! Loss scaling: steps with infinite gradients change nothing, and small gradients survive f16.
//!
//! Tests run one at a time: they share the random numbers of a device, and one counts launches.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;

use burn::grad_clipping::GradientClippingConfig;
use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    AdaGradConfig, AdamConfig, AdamWConfig, AdanConfig, GradientsAccumulator, GradientsParams,
    MultiGradientsParams, Optimizer, RmsPropConfig, SgdConfig,
};
use burn::record::{HalfPrecisionSettings, NamedMpkBytesRecorder, Record, Recorder};
use burn::tensor::backend::{Backend, DeviceOps};
use burn::tensor::{Bool, DType, FloatDType, Tensor, TensorData, activation, s};
use burn_wgsl::runtime::{Event, Observer, Origin};
use burn_wgsl::scaler::{GradScaler, GradScalerConfig, SCALES, ScalerState};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast, memory};

use crate::common::{devices, gpus, is_alone, panic_message, runtime_of, serial_guard, test_alone};

type B = Autodiff<Wgsl>;

#[derive(Module, Debug)]
struct Network<B: Backend> {
    first: Linear<B>,
    last: Linear<B>,
}

impl Network<B> {
    fn new(device: &WgslDevice) -> Self {
        B::seed(device, 7);
        let network = Self {
            first: LinearConfig::new(4, 16).init(device),
            last: LinearConfig::new(16, 1).init(device),
        };
        // Parameters are computed when they are first used.
        let _ = network.bits();
        network
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.last.forward(activation::tanh(self.first.forward(x)))
    }

    /// Returns the bits of all parameters.
    fn bits(&self) -> Vec<u32> {
        let parameters = [
            self.first.weight.val().reshape([64]),
            self.first.bias.as_ref().expect("it has a bias").val(),
            self.last.weight.val().reshape([16]),
            self.last.bias.as_ref().expect("it has a bias").val(),
        ];
        let values = |parameter: Tensor<B, 1>| parameter.into_data().to_vec::<f32>().expect("f32");
        parameters.into_iter().flat_map(values).map(f32::to_bits).collect()
    }
}

/// Returns inputs `[32, 4]` and targets `[32, 1]`.
fn samples(device: &WgslDevice) -> [Tensor<B, 2>; 2] {
    let x: Vec<f32> = (0..128).map(|i| (i * 7919 % 101) as f32 / 50.0 - 1.0).collect();
    let x = Tensor::<B, 2>::from_data(TensorData::new(x, [32, 4]), device);
    let y = x.clone().slice([0..32, 0..1]) * x.clone().slice([0..32, 1..2]);
    [x, y]
}

fn loss(network: &Network<B>, device: &WgslDevice) -> Tensor<B, 1> {
    let [x, y] = samples(device);
    (network.forward(x) - y).powi_scalar(2).mean()
}

#[test]
fn a_step_with_an_infinite_gradient_changes_no_parameter() {
    let _serial = serial_guard();
    for device in devices() {
        for factor in [f32::INFINITY, f32::NAN] {
            let scaler = GradScalerConfig::default().init(&device);
            let mut optimizer = scaler.wrap(AdamConfig::new().init());
            let mut network = Network::new(&device);
            let mut step = |network: Network<B>, factor: f32| {
                let loss = scaler.scale(loss(&network, &device) * factor);
                let grads = GradientsParams::from_grads(loss.backward(), &network);
                optimizer.step(0.01, network, grads)
            };
            network = step(network, 1.0);
            let before = network.bits();
            network = step(network, factor);
            assert_eq!(network.bits(), before, "{factor} on {device}");
            let state = scaler.state();
            let expected = ScalerState { scale: 32768.0, good_steps: 0, skipped_steps: 1 };
            assert_eq!(state, expected, "{factor} on {device}");
            network = step(network, 1.0);
            let after = network.bits();
            assert_ne!(after, before, "training goes on on {device}");
            let is_finite = |bits: &u32| f32::from_bits(*bits).is_finite();
            assert!(after.iter().all(is_finite), "{device}");
            assert_eq!(scaler.state().good_steps, 1, "{device}");
        }
    }
}

/// Checks that an optimizer's step with an infinite gradient changes no parameter, and that the next
/// one does.
fn assert_skips<O: Optimizer<Network<B>, B>>(name: &str, optimizer: O, device: &WgslDevice) {
    let scaler = GradScalerConfig::default().init(device);
    let mut optimizer = scaler.wrap(optimizer);
    let mut network = Network::new(device);
    let mut before = Vec::new();
    for (step, factor) in [1.0, f32::INFINITY, 1.0].into_iter().enumerate() {
        let loss = scaler.scale(loss(&network, device) * factor);
        let grads = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(0.01, network, grads);
        let bits = network.bits();
        assert_eq!(bits == before, step == 1, "{name}, step {step} on {device}");
        let is_finite = |bits: &u32| f32::from_bits(*bits).is_finite();
        assert!(bits.iter().all(is_finite), "{name}, step {step} on {device}");
        before = bits;
    }
    assert_eq!(scaler.state().skipped_steps, 1, "{name} on {device}");
}

#[test]
fn other_optimizers_skip_the_step_too() {
    let _serial = serial_guard();
    for device in devices() {
        let momentum = MomentumConfig::new().with_momentum(0.9).with_nesterov(true);
        let sgd = SgdConfig::new().with_momentum(Some(momentum));
        let sgd = sgd.with_weight_decay(Some(WeightDecayConfig::new(0.01)));
        assert_skips("SGD", sgd.init::<B, Network<B>>(), &device);
        assert_skips("AdamW", AdamWConfig::new().init::<B, Network<B>>(), &device);
        assert_skips("Adan", AdanConfig::new().init::<B, Network<B>>(), &device);
        assert_skips("AdaGrad", AdaGradConfig::new().init::<B, Network<B>>(), &device);
        assert_skips("RMSProp", RmsPropConfig::new().init::<B, Network<B>>(), &device);
    }
}

/// The loss is finite, and the backward pass overflows in f16 until the scale has fallen.
#[test]
fn a_scale_that_is_too_large_falls_until_steps_succeed() {
    let _serial = serial_guard();
    for device in devices() {
        let config = GradScalerConfig { initial_scale: 2.0f32.powi(40), ..Default::default() };
        let scaler = config.init(&device);
        let mut optimizer = scaler.wrap(SgdConfig::new().init::<B, Network<B>>());
        let mut network = Network::new(&device);
        let (mut losses, mut before) = (Vec::new(), network.bits());
        for step in 0..60 {
            let loss = {
                let _scope = autocast(&device, Precision::F16);
                loss(&network, &device)
            };
            losses.push(loss.clone().into_scalar());
            let skipped = scaler.state().skipped_steps;
            let grads = GradientsParams::from_grads(scaler.scale(loss).backward(), &network);
            network = optimizer.step(0.1, network, grads);
            let bits = network.bits();
            let is_skipped = scaler.state().skipped_steps > skipped;
            assert_eq!(bits == before, is_skipped, "step {step} on {device}");
            before = bits;
        }
        let ScalerState { scale, good_steps, skipped_steps } = scaler.state();
        assert_eq!(scale, 2.0f32.powi(40 - skipped_steps as i32), "{device}");
        assert!(skipped_steps >= 10 && good_steps >= 10, "{skipped_steps} skipped on {device}");
        let [first, last] = [losses[0], losses[59]];
        assert!(first.is_finite() && last < 0.9 * first, "{first} to {last} on {device}");
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let default = GradScalerConfig::default;
    for (config, cause) in [
        (GradScalerConfig { growth_factor: 1.0, ..default() }, "the first must be above 1"),
        (GradScalerConfig { backoff_factor: 1.0, ..default() }, "the second between 0 and 1"),
        (GradScalerConfig { backoff_factor: f32::NAN, ..default() }, "the second between 0 and 1"),
        (GradScalerConfig { growth_interval: 0, ..default() }, "it must be at least 1"),
        (GradScalerConfig { initial_scale: 0.0, ..default() }, "it must be from 7.88"),
    ] {
        let message = panic_message(|| drop(config.init(&WgslDevice::Cpu)));
        assert!(message.contains(cause), "{message}");
    }
}

#[test]
fn the_scale_grows_after_the_interval() {
    let _serial = serial_guard();
    for device in devices() {
        let config =
            GradScalerConfig { initial_scale: 8.0, growth_interval: 2, ..Default::default() };
        let scaler = config.init(&device);
        let mut optimizer = scaler.wrap(SgdConfig::new().init::<B, Network<B>>());
        let mut network = Network::new(&device);
        let mut scales = Vec::new();
        for _ in 0..5 {
            let loss = scaler.scale(loss(&network, &device));
            let grads = GradientsParams::from_grads(loss.backward(), &network);
            network = optimizer.step(0.01, network, grads);
            scales.push(scaler.state().scale);
        }
        assert_eq!(scales, [8.0, 16.0, 16.0, 32.0, 32.0], "{device}");
    }
}

/// It is 2^-100 to 2^100: the scale and its inverse stay normal numbers, and parameters finite.
#[test]
fn the_scale_has_ends() {
    let _serial = serial_guard();
    for device in devices() {
        for (scale, factor) in [(*SCALES.start(), f32::INFINITY), (*SCALES.end(), 0.0)] {
            let config = GradScalerConfig { growth_interval: 1, ..Default::default() };
            let scaler = config.init(&device);
            let mut optimizer = scaler.wrap(SgdConfig::new().init::<B, Network<B>>());
            let mut network = Network::new(&device);
            let before = network.bits();
            scaler.load_state(ScalerState { scale, good_steps: 0, skipped_steps: 3 });
            for _ in 0..2 {
                let output = network.forward(samples(&device)[0].clone());
                let loss = scaler.scale(output.sum() * factor);
                let grads = GradientsParams::from_grads(loss.backward(), &network);
                network = optimizer.step(0.01, network, grads);
                assert_eq!(scaler.state().scale, scale, "{device}");
            }
            assert_eq!(network.bits(), before, "{factor} on {device}");
            let state = ScalerState { scale: scale * scale, good_steps: 0, skipped_steps: 0 };
            let message = panic_message(AssertUnwindSafe(|| scaler.load_state(state)));
            assert!(message.contains("it must be from 7.88"), "{message}");
        }
    }
}

/// A copy of a parameter that the step replaced would keep the parameter's memory.
#[test]
fn steps_in_a_scope_keep_the_copies_of_one_version() {
    if !is_alone(test_alone!("steps_in_a_scope_keep_the_copies_of_one_version")) {
        return;
    }
    for device in gpus() {
        let scaler = GradScalerConfig::default().init(&device);
        let mut optimizer = scaler.wrap(SgdConfig::new().init::<B, Linear<B>>());
        let mut layer = LinearConfig::new(512, 512).with_bias(false).init::<B>(&device);
        let mut step = |layer: Linear<B>| {
            let _scope = autocast(&device, Precision::F16);
            let x = Tensor::<B, 2>::ones([2, 512], &device);
            let mut layer = layer;
            for _ in 0..3 {
                let loss = scaler.scale(layer.forward(x.clone()).mean());
                let grads = GradientsParams::from_grads(loss.backward(), &layer);
                layer = optimizer.step(0.01, layer, grads);
            }
            // The parameter is computed, and its copy with it.
            let _ = layer.weight.val().into_data();
            let used = memory::usage(&device).expect("the device is open").in_use;
            (layer, used)
        };
        let (first, _) = step(layer);
        let before = memory::usage(&device).expect("the device is open").in_use;
        layer = first;
        let (_layer, used) = step(layer);
        let parameter = 4 * 512 * 512;
        let more = used.saturating_sub(before);
        // The copy is half of a parameter.
        assert!(
            more < parameter * 3 / 4,
            "{more} bytes beside a parameter of {parameter} on {device}"
        );
    }
}

/// With a scale that is a power of two, scaling rounds nothing.
#[test]
fn steps_are_those_without_a_scale() {
    let _serial = serial_guard();
    for device in devices() {
        let clipped = || {
            let clipping = GradientClippingConfig::Norm(0.05);
            SgdConfig::new().with_gradient_clipping(Some(clipping)).init::<B, Network<B>>()
        };
        let (mut plain, scaler) = (clipped(), GradScalerConfig::default().init(&device));
        let mut scaled = scaler.wrap(clipped());
        let (mut left, mut right) = (Network::new(&device), Network::new(&device));
        for _ in 0..3 {
            // Two batches for each step.
            let accumulated = |network: &Network<B>, scale: bool| {
                let mut accumulator = GradientsAccumulator::new();
                for _ in 0..2 {
                    let loss = loss(network, &device);
                    let loss = if scale { scaler.scale(loss) } else { loss };
                    let grads = GradientsParams::from_grads(loss.backward(), network);
                    accumulator.accumulate(network, grads);
                }
                accumulator.grads()
            };
            let grads = [accumulated(&left, false), accumulated(&right, true)];
            let [of_left, of_right] = grads;
            left = plain.step(0.1, left, of_left);
            right = scaled.step(0.1, right, of_right);
        }
        // The compilers of GPUs contract products and sums within a kernel, and the kernels differ.
        let may_contract = matches!(device, WgslDevice::Gpu(_));
        let [left, right] = [left.bits(), right.bits()];
        assert_eq!(left.len(), right.len());
        for (left, right) in left.into_iter().zip(right) {
            let [x, y] = [left, right].map(f32::from_bits);
            let is_close = may_contract && (x - y).abs() <= 1e-6 * x.abs().max(0.1);
            assert!(left == right || is_close, "{x} and {y} on {device}");
        }
    }
}

/// Takes steps, of which the second has an infinite gradient if `is_infinite`. Returns the bits of the parameters.
fn bits_after_steps<O: Optimizer<Network<B>, B>>(
    mut optimizer: O,
    scaler: &GradScaler,
    is_infinite: bool,
    device: &WgslDevice,
) -> Vec<u32> {
    let mut network = Network::new(device);
    for step in 0..3 {
        let factor = if is_infinite && step == 1 { f32::INFINITY } else { 1.0 };
        let loss = scaler.scale(loss(&network, device) * factor);
        let grads = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(0.1, network, grads);
    }
    network.bits()
}

#[test]
fn a_disabled_scaler_changes_nothing() {
    let _serial = serial_guard();
    for device in devices() {
        let scaler = GradScalerConfig { enabled: false, ..Default::default() }.init(&device);
        assert!(!scaler.is_enabled() && GradScalerConfig::default().init(&device).is_enabled());
        let sgd = || SgdConfig::new().init::<B, Network<B>>();
        let of = |is_infinite| {
            let plain = bits_after_steps(sgd(), &scaler, is_infinite, &device);
            [plain, bits_after_steps(scaler.wrap(sgd()), &scaler, is_infinite, &device)]
        };
        let [plain, wrapped] = of(false);
        assert_eq!(plain, wrapped, "{device}");
        // No step is skipped.
        let [_, wrapped] = of(true);
        assert!(wrapped.iter().any(|bits| !f32::from_bits(*bits).is_finite()), "{device}");
        assert_eq!(scaler.state(), GradScalerConfig::default().init(&device).state(), "{device}");
        // The norm is limited all the same: to less than it is.
        let limited = scaler.wrap(sgd()).with_max_norm(1e-3);
        let limited = bits_after_steps(limited, &scaler, false, &device);
        let start = Network::new(&device).bits();
        let distance = |bits: &[u32]| {
            let pairs = bits.iter().zip(&start);
            let squares = pairs.map(|(a, b)| (f32::from_bits(*a) - f32::from_bits(*b)).powi(2));
            squares.sum::<f32>().sqrt()
        };
        // Three steps with a rate of 0.1.
        let (far, near) = (distance(&plain), distance(&limited));
        assert!(near > 0.0 && near < 3.1e-4 && far > 1e-3, "{far} and {near} on {device}");
    }
}

/// A parameter has gradients of its own type.
#[test]
fn parameters_keep_their_types() {
    let _serial = serial_guard();
    for device in devices() {
        for dtype in [FloatDType::F16, FloatDType::BF16, FloatDType::F64] {
            let scaler = GradScalerConfig::default().init(&device);
            let mut optimizer = scaler.wrap(SgdConfig::new().init::<B, Linear<B>>());
            let mut layer = LinearConfig::new(2, 1).with_bias(false).init::<B>(&device);
            let weight = Tensor::<B, 2>::from_floats([[0.5], [0.25]], &device).cast(dtype);
            layer.weight = Param::from_tensor(weight.detach());
            let x = Tensor::<B, 2>::from_floats([[1.0, 2.0]], &device).cast(dtype);
            // The scale is the gradient of the loss, and too large for f16.
            let loss = layer.forward(x).sum().cast(FloatDType::F32) * 2.0f32.powi(-10);
            let grads = GradientsParams::from_grads(scaler.scale(loss).backward(), &layer);
            layer = optimizer.step(256.0, layer, grads);
            let weight = layer.weight.val();
            assert_eq!(weight.dtype(), dtype.into(), "{device}");
            let weight = weight.into_data().iter::<f32>().collect::<Vec<_>>();
            // Scales are powers of two, so nothing is rounded.
            assert_eq!(weight, [0.25, -0.25], "{dtype:?} on {device}");
        }
    }
}

/// Adam computes powers, which are f32 in a scope.
#[test]
fn parameters_keep_their_types_if_adam_steps_in_a_scope() {
    let _serial = serial_guard();
    for device in devices() {
        let _scope = autocast(&device, Precision::F16);
        let scaler = GradScalerConfig::default().init(&device);
        let mut optimizer = scaler.wrap(AdamConfig::new().init::<B, Linear<B>>());
        let mut layer = LinearConfig::new(2, 1).with_bias(false).init::<B>(&device);
        let weight = Tensor::<B, 2>::from_floats([[0.5], [0.25]], &device).cast(FloatDType::F16);
        layer.weight = Param::from_tensor(weight.detach());
        for _ in 0..2 {
            let x = Tensor::<B, 2>::from_floats([[1.0, 2.0]], &device);
            let loss = layer.forward(x).sum().cast(FloatDType::F32) * 2.0f32.powi(-10);
            let grads = GradientsParams::from_grads(scaler.scale(loss).backward(), &layer);
            layer = optimizer.step(0.125, layer, grads);
            assert_eq!(layer.weight.val().dtype(), DType::F16, "{device}");
        }
        // Adam's steps are as long as the learning rate.
        let weight = layer.weight.val().into_data().iter::<f32>().collect::<Vec<_>>();
        for (found, expected) in weight.into_iter().zip([0.25, 0.0]) {
            assert!((found - expected).abs() < 1e-2, "{found}, expected {expected} on {device}");
        }
    }
}

/// The gradients of a step have the given norm together, and in the direction of those that are not limited.
#[test]
fn the_norm_of_all_gradients_is_limited() {
    let _serial = serial_guard();
    for device in devices() {
        let config = GradScalerConfig { initial_scale: 1024.0, ..Default::default() };
        let change = |max_norm: Option<f32>| {
            let scaler = config.init(&device);
            let mut optimizer = scaler.wrap(SgdConfig::new().init::<B, Network<B>>());
            if let Some(max_norm) = max_norm {
                optimizer = optimizer.with_max_norm(max_norm);
            }
            let network = Network::new(&device);
            let before = network.bits();
            let grads = scaler.scale(loss(&network, &device)).backward();
            let grads = GradientsParams::from_grads(grads, &network);
            let after = optimizer.step(1.0, network, grads).bits();
            let differences = before.into_iter().zip(after);
            differences
                .map(|(before, after)| f64::from(f32::from_bits(before) - f32::from_bits(after)))
                .collect::<Vec<f64>>()
        };
        let norm = |change: &[f64]| change.iter().map(|x| x * x).sum::<f64>().sqrt();
        let free = change(None);
        assert!(norm(&free) > 0.02, "{}", norm(&free));
        let limited = change(Some(0.01));
        assert!((norm(&limited) - 0.01).abs() < 1e-5, "{} on {device}", norm(&limited));
        let factor = 0.01 / norm(&free);
        for (free, limited) in free.iter().zip(&limited) {
            assert!((free * factor - limited).abs() < 1e-5, "{device}");
        }
        assert_eq!(change(Some(100.0)), free, "a norm below the limit on {device}");
    }
    let panics = |max_norm: f32| {
        let optimizer = SgdConfig::new().init::<B, Network<B>>();
        let scaled = GradScalerConfig::default().init(&WgslDevice::Cpu).wrap(optimizer);
        panic_message(AssertUnwindSafe(|| drop(scaled.with_max_norm(max_norm))))
    };
    assert!(panics(0.0).contains("above 0") && panics(f32::NAN).contains("above 0"));
}

#[test]
fn states_are_read_without_blocking() {
    let _serial = serial_guard();
    for device in devices() {
        let scaler = GradScalerConfig::default().init(&device);
        let state = ScalerState { scale: 512.0, good_steps: 3, skipped_steps: 2 };
        scaler.load_state(state);
        assert_eq!(pollster::block_on(scaler.state_async()).expect("the device works"), state);
    }
}

/// Burn moves a parameter to the device of its gradient.
#[test]
fn steps_with_gradients_of_two_devices() {
    let _serial = serial_guard();
    for device in gpus() {
        let scaler = GradScalerConfig::default().init(&device);
        let mut optimizer = scaler.wrap(SgdConfig::new().init::<B, Network<B>>());
        let network = Network::new(&device);
        for factor in [1.0, f32::INFINITY] {
            let before = network.bits();
            let grads_on = |of: &WgslDevice| {
                let network = network.clone().fork(of);
                let loss = scaler.scale(loss(&network, of) * factor);
                GradientsParams::from_grads(loss.backward(), &network)
            };
            let grads = [device, WgslDevice::Cpu].map(|of| (grads_on(&of), of.id()));
            let grads = MultiGradientsParams { grads: grads.into() };
            let after = optimizer.step_multi(0.01, network.clone(), grads).bits();
            assert_eq!(after == before, factor.is_infinite(), "{factor} on {device}");
        }
        assert_eq!(scaler.state().skipped_steps, 1, "{device}");
    }
}

/// A gradient can be infinite in the type of its parameter where its multiple is not.
#[test]
fn a_gradient_that_f16_cannot_hold_changes_no_parameter() {
    let _serial = serial_guard();
    for device in devices() {
        let config = GradScalerConfig { initial_scale: 0.25, ..Default::default() };
        let scaler = config.init(&device);
        let mut optimizer = scaler.wrap(SgdConfig::new().init::<B, Linear<B>>());
        let mut layer = LinearConfig::new(1, 1).with_bias(false).init::<B>(&device);
        let weight = Tensor::<B, 2>::from_floats([[0.5]], &device).cast(FloatDType::F16);
        layer.weight = Param::from_tensor(weight.detach());
        let x = Tensor::<B, 2>::from_floats([[1.0]], &device).cast(FloatDType::F16);
        // The gradient is 2^17, and 2^15 in the backward pass.
        let loss = layer.forward(x).sum().cast(FloatDType::F32) * 2.0f32.powi(17);
        let grads = GradientsParams::from_grads(scaler.scale(loss).backward(), &layer);
        layer = optimizer.step(0.1, layer, grads);
        let weight = layer.weight.val().into_data();
        assert_eq!(weight.iter::<f32>().collect::<Vec<_>>(), [0.5], "{device}");
        assert_eq!(scaler.state().skipped_steps, 1, "{device}");
    }
}

/// Gradients of 1e-8 are 0 in f16.
#[test]
fn small_gradients_survive_f16() {
    let _serial = serial_guard();
    for device in devices() {
        let train = |scaled: bool| {
            let initial_scale = if scaled { 65536.0 } else { 1.0 };
            let scaler = GradScalerConfig { initial_scale, ..Default::default() }.init(&device);
            // The learning rate makes up for the small loss.
            let mut optimizer = scaler.wrap(SgdConfig::new().init::<B, Network<B>>());
            let mut network = Network::new(&device);
            for _ in 0..30 {
                let scope = autocast(&device, Precision::F16);
                let loss = scaler.scale(loss(&network, &device) * 1e-7);
                drop(scope);
                let grads = GradientsParams::from_grads(loss.backward(), &network);
                network = optimizer.step(1e6, network, grads);
            }
            loss(&network, &device).into_data().iter::<f32>().next().expect("a loss")
        };
        let (with, without) = (train(true), train(false));
        assert!(with < 0.9 * without, "{device}: {with} with a scale, {without} without");
    }
}

#[test]
fn states_are_saved_as_text() {
    let state = ScalerState { scale: 1024.5, good_steps: 17, skipped_steps: 3 };
    assert_eq!(state.to_string().parse(), Ok(state));
    for text in
        ["", "burn-wgsl GradScaler 2: scale 1", "burn-wgsl GradScaler 1: scale -1 good 0 skipped 0"]
    {
        let error = text.parse::<ScalerState>().expect_err("it is invalid").to_string();
        assert!(error.contains("not the state of a GradScaler"), "{error}");
    }
}

/// Counts readbacks and launches on one thread.
struct Counts {
    thread: ThreadId,
    readbacks: AtomicUsize,
    /// Launches that test tensors.
    tests: AtomicUsize,
    other_launches: AtomicUsize,
}

impl Counts {
    /// Creates counts for this thread.
    fn new() -> Arc<Self> {
        let thread = std::thread::current().id();
        let [readbacks, tests, other_launches] = [0; 3].map(AtomicUsize::new);
        Arc::new(Self { thread, readbacks, tests, other_launches })
    }
}

impl Observer for Counts {
    fn event(&self, _: Origin, event: Event<'_>) {
        let count = match event {
            Event::Readback { .. } => &self.readbacks,
            Event::Dispatch { kernel, .. } if kernel.source.name == "finite" => &self.tests,
            Event::Dispatch { .. } => &self.other_launches,
            _ => return,
        };
        if std::thread::current().id() == self.thread {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A launch tests 44 tensors where an adapter binds as many, and another combines the results.
#[test]
fn an_infinity_is_found_in_any_of_many_tensors() {
    let _serial = serial_guard();
    for device in devices() {
        let sizes = (0..53).map(|at| [1, 7, 64, 1000, 20_000][at % 5]);
        let tensors: Vec<_> = sizes.map(|size| Tensor::<Wgsl, 1>::ones([size], &device)).collect();
        let found = |tensors: &[Tensor<Wgsl, 1>]| {
            let primitives = tensors.iter().map(|tensor| tensor.clone().into_primitive().tensor());
            let found = Wgsl::any_not_finite(primitives.collect());
            Tensor::<Wgsl, 1, Bool>::from_primitive(found)
        };
        let is_found = |tensors: &[_]| found(tensors).into_scalar();
        assert!(!is_found(&tensors), "all are finite on {device}");
        for (at, value) in
            [(0, f32::NAN), (6, f32::INFINITY), (31, f32::NEG_INFINITY), (52, -f32::NAN)]
        {
            let mut with = tensors.clone();
            let last = with[at].dims()[0] - 1;
            let value = Tensor::from_floats([value], &device);
            with[at] = with[at].clone().slice_assign(s![last..], value);
            assert!(is_found(&with), "tensor {at} on {device}");
        }
        if device == WgslDevice::Cpu {
            continue;
        }
        let counts = Counts::new();
        let observation = runtime_of(&device).observe(counts.clone());
        assert!(!is_found(&tensors), "{device}");
        drop(observation);
        let runtime = runtime_of(&device);
        let per_launch = match runtime.info().limits.storage_buffers_per_stage {
            _ if runtime.is_software() => 7,
            25..45 => 24,
            45.. => 44,
            _ => 7,
        };
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        assert_eq!(count(&counts.tests), tensors.len().div_ceil(per_launch), "{device}");
        // A pending launch combines the results: this thread's wait computes it, or another thread's.
        assert!(count(&counts.other_launches) <= 1, "{device}");
    }
}

#[test]
fn a_hundred_steps_read_nothing_back() {
    let _serial = serial_guard();
    for device in gpus() {
        let scaler = GradScalerConfig::default().init(&device);
        let mut optimizer = scaler.wrap(AdamConfig::new().init());
        let mut network = Network::new(&device);
        let counts = Counts::new();
        let observation = runtime_of(&device).observe(counts.clone());
        for step in 0..100 {
            let scope = autocast(&device, Precision::F16);
            let factor = if step == 50 { f32::INFINITY } else { 1.0 };
            let loss = scaler.scale(loss(&network, &device) * factor);
            drop(scope);
            let grads = GradientsParams::from_grads(loss.backward(), &network);
            network = optimizer.step(0.01, network, grads);
        }
        drop(observation);
        assert_eq!(counts.readbacks.load(Ordering::Relaxed), 0, "{device}");
        assert_eq!(scaler.state().skipped_steps, 1, "{device}");
    }
}

/// Its record has the scale, which 16 bits could not hold.
#[test]
fn the_record_of_an_optimizer_has_the_state() {
    type Recorded = NamedMpkBytesRecorder<HalfPrecisionSettings>;
    let _serial = serial_guard();
    for device in devices() {
        let scaler = || GradScalerConfig::default().init(&device);
        let adam = || AdamConfig::new().init::<B, Network<B>>();
        let state = ScalerState { scale: 2.0f32.powi(40), good_steps: 70_000, skipped_steps: 3 };
        let first = scaler();
        first.load_state(state);
        let optimizer = first.wrap(adam());
        let record = Optimizer::<Network<B>, B>::to_record(&optimizer);
        let recorder = Recorded::new();
        let bytes = Recorder::<B>::record(&recorder, record, ()).expect("it is recorded");
        let record = Recorder::<B>::load(&recorder, bytes, &device).expect("it is a record");
        let second = scaler();
        let _ = Optimizer::<Network<B>, B>::load_record(second.wrap(adam()), record);
        assert_eq!(second.state(), state, "{device}");
        assert_eq!(first.state(), state, "{device}");
        // The scale of a damaged file is not taken.
        let record = Optimizer::<Network<B>, B>::to_record(&second.wrap(adam()));
        let (adams, _, good, skipped) =
            Record::<B>::into_item::<HalfPrecisionSettings>(record.clone());
        let damaged = (adams, f32::NAN, good, skipped);
        let damaged = from_item(record, damaged, &device);
        let _ = Optimizer::<Network<B>, B>::load_record(second.wrap(adam()), damaged);
        assert_eq!(second.state(), state, "{device}");
    }
}

/// Returns a record of the type of another.
fn from_item<R: Record<B>>(
    _like: R,
    item: R::Item<HalfPrecisionSettings>,
    device: &WgslDevice,
) -> R {
    R::from_item::<HalfPrecisionSettings>(item, device)
}
