//! Accumulated gradients, averages of weights, and the search for a batch size.

use burn::module::{AutodiffModule, Module};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor, TensorData};
use burn_wgsl::scaler::GradScalerConfig;
use burn_wgsl::train::{BatchSearch, Ema, MeanGradients, Stop};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, random_state, set_random_state, time};

use crate::common::{devices, is_alone, test_alone};

type B = Autodiff<Wgsl>;

#[derive(Module, Debug)]
struct Model<B: Backend> {
    hidden: Linear<B>,
    norm: BatchNorm<B>,
    out: Linear<B>,
}

fn numbers<const D: usize>(seed: usize, shape: [usize; D], device: &WgslDevice) -> Tensor<B, D> {
    let element = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
    let values: Vec<f32> = (0..shape.iter().product()).map(element).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn model(device: &WgslDevice) -> Model<B> {
    let linear = |seed, [from, to]: [usize; 2]| {
        let mut layer: Linear<B> = LinearConfig::new(from, to).init(device);
        let weight = numbers(seed, [from, to], device) * 0.3;
        layer.weight = layer.weight.map(|_| weight.inner_weight());
        layer.bias = layer.bias.map(|bias| bias.map(|bias| bias.zeros_like().require_grad()));
        layer
    };
    let norm = BatchNormConfig::new(24).init(device);
    Model { hidden: linear(1, [12, 24]), norm, out: linear(2, [24, 3]) }
}

/// A weight that has gradients.
trait InnerWeight {
    fn inner_weight(self) -> Self;
}

impl InnerWeight for Tensor<B, 2> {
    fn inner_weight(self) -> Self {
        Tensor::from_inner(self.inner()).require_grad()
    }
}

/// The loss of rows of the data. Batch normalisation is left out: its statistics are those of a batch.
fn loss(model: &Model<B>, x: &Tensor<B, 2>, rows: std::ops::Range<usize>) -> Tensor<B, 1> {
    let x = x.clone().slice(rows);
    let y = model.out.forward(model.hidden.forward(x.clone()).tanh());
    (y - x.narrow(1, 0, 3)).powi_scalar(2).mean()
}

fn weights(model: &Model<B>) -> Vec<f32> {
    let weight = |layer: &Linear<B>| layer.weight.val().into_data().to_vec::<f32>();
    [&model.hidden, &model.out].into_iter().flat_map(|layer| weight(layer).expect("f32")).collect()
}

/// Trains for ten steps of batches of these sizes.
fn trained(batches: &[usize], scaled: bool, device: &WgslDevice) -> Vec<f32> {
    let x = numbers(3, [64, 12], device);
    let mut model = model(device);
    let scaler = GradScalerConfig { enabled: scaled, ..Default::default() }.init(device);
    let mut optimizer = scaler.wrap(SgdConfig::new().init::<B, Model<B>>()).with_max_norm(0.5);
    for _ in 0..10 {
        let mut mean = MeanGradients::new();
        for batch in batches {
            let rows = mean.samples()..mean.samples() + batch;
            let loss = scaler.scale(loss(&model, &x, rows));
            mean.add(&model, GradientsParams::from_grads(loss.backward(), &model), *batch);
        }
        assert_eq!(mean.samples(), 64);
        model = optimizer.step(0.1, model, mean.take());
        assert_eq!((mean.samples(), mean.take().len()), (0, 0));
    }
    weights(&model)
}

#[test]
fn accumulated_batches_train_as_one_batch() {
    for device in devices() {
        let expected = trained(&[64], false, &device);
        assert_ne!(expected, weights(&model(&device)));
        let others =
            [(&[16; 4][..], false), (&[30, 20, 14], false), (&[16; 4], true), (&[64], true)];
        for (batches, scaled) in others {
            let found = trained(batches, scaled, &device);
            for (found, expected) in found.iter().zip(&expected) {
                let error = (found - expected).abs();
                assert!(error < 1e-6, "{error} with {batches:?}, {scaled} on {device}");
            }
        }
    }
}

#[test]
fn averages_are_those_of_the_formula() {
    for device in devices() {
        let mut model = model(&device);
        let mut ema = Ema::new(&model, 0.9);
        let mut expected: Vec<f64> = weights(&model).into_iter().map(f64::from).collect();
        let mut optimizer = SgdConfig::new().init::<B, Model<B>>();
        let x = numbers(3, [64, 12], &device);
        let mean = |model: &Model<Wgsl>| {
            let mean = model.norm.running_mean.value_sync().into_data();
            mean.iter::<f64>().collect::<Vec<_>>()
        };
        let mut expected_mean = mean(&model.valid());
        for step in 0..20 {
            // Updates the running statistics.
            let rows = x.clone().slice(step as usize..step as usize + 40);
            model.norm.forward(model.hidden.forward(rows));
            let loss = loss(&model, &x, 0..64);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(0.3, model, gradients);
            ema.update(&model);
            let decay = f64::min(0.9, (1.0 + f64::from(step)) / (10.0 + f64::from(step)));
            for (average, weight) in expected.iter_mut().zip(weights(&model)) {
                *average = decay * *average + (1.0 - decay) * f64::from(weight);
            }
            for (average, mean) in expected_mean.iter_mut().zip(mean(&model.valid())) {
                *average = decay * *average + (1.0 - decay) * mean;
            }
        }
        let average = ema.model();
        let found = [&average.hidden, &average.out].into_iter().flat_map(|layer| {
            layer.weight.val().into_data().to_vec::<f32>().expect("the weights are f32")
        });
        for (found, expected) in found.zip(&expected) {
            assert!((f64::from(found) - expected).abs() < 1e-6, "{found}, {expected} on {device}");
        }
        let found = mean(ema.model());
        assert_ne!(found, mean(&model.valid()), "the statistics moved on {device}");
        for (found, expected) in found.iter().zip(&expected_mean) {
            assert!((found - expected).abs() < 1e-6, "{found}, {expected} on {device}");
        }
        assert_eq!(ema.steps(), 20);
        // The model itself is not changed, and a copy of the average continues.
        let mut copy = Ema::new(&model, 0.9);
        copy.resume(ema.model().clone(), ema.steps());
        copy.update(&model);
        ema.update(&model);
        let weight = |ema: &Ema<Model<Wgsl>>| ema.model().out.weight.val().into_data();
        assert_eq!(weight(&copy), weight(&ema));
        assert_ne!(weight(&ema), model.valid().out.weight.val().into_data());
    }
}

#[test]
#[should_panic(expected = "the decay is 1; it must be at least 0 and below 1")]
fn a_decay_that_forgets_nothing_is_refused() {
    let _ = Ema::new(&model(&WgslDevice::Cpu), 1.0);
}

#[test]
fn a_step_that_always_fails_is_an_error() {
    for device in devices() {
        let error = BatchSearch::default().find(&device, |_| panic!("out of memory"));
        let error = error.expect_err("nothing fits").to_string();
        assert!(error.contains("a batch of 1 fails: out of memory"), "{error}");
        // The largest batch is that of the search, where all fit.
        let search = BatchSearch { max: 24, steps: 1, ..Default::default() };
        let found = search.find(&device, |batch| drop(numbers(1, [batch], &device))).expect("fits");
        assert_eq!(found.largest, 24, "{found}");
    }
}

#[test]
fn work_is_timed_on_every_device() {
    for device in devices() {
        let x = numbers(1, [64, 64], &device);
        let timing = time(&device, || x.clone().matmul(x.clone())).expect("it is computed");
        let seconds = timing.seconds;
        assert!(0.0 < seconds.min && seconds.min <= seconds.lower_quartile);
        assert!(seconds.upper_quartile <= seconds.max && timing.samples >= 3 && timing.runs >= 1);
        assert!(timing.to_string().contains("samples of"), "{timing}");
    }
    let missing = "gpu:99".parse().expect("it is a selector");
    assert!(time(&missing, || ()).is_err_and(|error| error.to_string().contains("gpu:99")));
}

#[test]
fn random_numbers_continue_at_a_saved_state() {
    // Other tests draw from the same stream of a device.
    if !is_alone(test_alone!("random_numbers_continue_at_a_saved_state")) {
        return;
    }
    let draw = |device: &WgslDevice| {
        Tensor::<Wgsl, 1>::random([37], Distribution::Normal(0.0, 1.0), device).into_data()
    };
    let mut states = Vec::new();
    for device in devices() {
        Wgsl::seed(&device, 11);
        draw(&device);
        let state = random_state(&device).expect("the device exists");
        // As a file.
        let saved = serde_json::to_string(&state).expect("it is plain data");
        let expected = draw(&device);
        Wgsl::seed(&device, 12);
        assert_ne!(draw(&device), expected);
        let state = serde_json::from_str(&saved).expect("it is a state");
        set_random_state(&device, state).expect("the device exists");
        assert_eq!(draw(&device), expected, "on {device}");
        states.push(state);
    }
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
    let missing = "gpu:99".parse().expect("it is a selector");
    assert!(random_state(&missing).is_err() && set_random_state(&missing, states[0]).is_err());
}

#[cfg(unix)]
#[test]
fn a_signal_ends_a_loop_after_its_step_and_a_second_at_once() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    for (signals, code) in [(&["TERM"][..], 143), (&["INT"], 130), (&["INT", "TERM"], 143)] {
        let mut test = test_alone!("runs_until_a_signal");
        let test = test.env("STOPS", if signals.len() == 1 { "1" } else { "0" });
        let mut child =
            test.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut wait_for = |text: &str| {
            let is_there = lines.by_ref().map_while(Result::ok).any(|line| line.contains(text));
            assert!(is_there, "the child prints {text:?}");
        };
        wait_for("the handlers are installed");
        for signal in signals {
            let id = child.id().to_string();
            let sent = std::process::Command::new("kill").args(["-s", signal, &id]).status();
            assert!(sent.is_ok_and(|status| status.success()));
            if signals.len() > 1 && *signal == "INT" {
                // The second counts after a second.
                wait_for("stop is requested");
                std::thread::sleep(std::time::Duration::from_millis(1200));
            }
        }
        if signals.len() == 1 {
            wait_for("the step has ended");
        }
        assert_eq!(child.wait().expect("it ends").code(), Some(code), "{signals:?}");
    }
}

#[test]
#[ignore = "runs in a child process"]
fn runs_until_a_signal() {
    let stop = Stop::on_signals().expect("the handlers are installed");
    println!("the handlers are installed");
    while !stop.is_requested() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    println!("stop is requested");
    while std::env::var("STOPS").is_ok_and(|stops| stops == "0") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    println!("the step has ended");
    std::process::exit(stop.exit_code().into());
}
