//! Models in stages on devices of their own, beside the same model on one.

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData, activation};
use burn_wgsl::parallel::{MicroBatch, ParallelError, Pipeline, PipelineStep, Schedule, Workers};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, waits_on_thread};

use crate::cnn::{Fill, numbers};
use crate::common::{devices, gpus};

type B = Autodiff<Wgsl>;

/// Devices of each adapter and of the CPU, as many as there are stages, and different ones.
fn worlds() -> Vec<Vec<WgslDevice>> {
    let open = |devices: Vec<WgslDevice>| {
        let workers = Workers::threads(devices).oversubscribed(true);
        workers.open().expect("they can be opened")
    };
    let mut worlds: Vec<Vec<WgslDevice>> =
        devices().into_iter().map(|device| open(vec![device; 3])).collect();
    if let [first, second, ..] = devices()[..] {
        worlds.push(open(vec![first, second, first]));
    }
    worlds
}

#[derive(Module, Debug)]
struct Model<B: Backend> {
    conv: Conv2d<B>,
    hidden: Vec<Linear<B>>,
    output: Linear<B>,
}

/// Creates a model of which each part is on a device.
fn model(devices: &[WgslDevice]) -> Model<B> {
    let model = Model {
        conv: Conv2dConfig::new([1, 4], [3, 3]).init(&devices[0]),
        hidden: (0..2).map(|_| LinearConfig::new(4 * 6 * 6, 4 * 6 * 6).init(&devices[1])).collect(),
        output: LinearConfig::new(4 * 6 * 6, 3).init(&devices[2]),
    };
    model.map(&mut Fill(0))
}

fn conv(conv: &Conv2d<B>, x: Tensor<B, 4>) -> Tensor<B, 4> {
    conv.forward(x).tanh()
}

fn hidden(hidden: &[Linear<B>], x: Tensor<B, 4>) -> Tensor<B, 2> {
    hidden.iter().fold(x.flatten(1, 3), |x, layer| activation::gelu(layer.forward(x)))
}

fn loss(y: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    CrossEntropyLossConfig::new().init(&y.device()).forward(y, labels)
}

/// Returns images and labels of a step. A part of a batch is on other devices.
fn batch(step: usize, devices: [&WgslDevice; 2]) -> (Tensor<B, 4>, Tensor<B, 1, Int>) {
    let labels: Vec<i32> = (0..32).map(|row| (row * 7 + step as i32) % 3).collect();
    let labels = Tensor::from_data(TensorData::new(labels, [32]), devices[1]);
    (numbers(step + 50, [32, 1, 8, 8], devices[0]), labels)
}

/// Trains as a pipeline, or at once on the first device. Returns the losses and the weights.
fn train(devices: &[WgslDevice], schedule: Option<Schedule>) -> (Vec<f32>, Vec<f32>) {
    let mut model = model(devices);
    let mut optimizer = SgdConfig::new().init();
    let mut losses = Vec::new();
    for step in 0..4 {
        let (images, labels) = batch(step, [&devices[0], &devices[2]]);
        let (loss, gradients) = match schedule {
            None => {
                let y = hidden(&model.hidden, conv(&model.conv, images));
                let loss = loss(model.output.forward(y), labels);
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                (loss.inner(), gradients)
            }
            Some(schedule) => {
                // Of unlike sizes.
                let rows = [0..8, 8..16, 16..23, 23..32];
                let micro_batches = rows.map(|rows| MicroBatch {
                    input: images.clone().slice_dim(0, rows.clone()),
                    samples: rows.len(),
                    target: labels.clone().slice_dim(0, rows),
                });
                let pipeline = Pipeline::start(&devices[0], &model.conv, conv)
                    .then(&devices[1], &model.hidden, |layers, x| hidden(layers, x))
                    .then(&devices[2], &model.output, |layer, x| layer.forward(x));
                let step = pipeline.step(micro_batches, schedule, loss);
                let PipelineStep { loss, gradients } = step.expect("there are samples");
                (loss, gradients)
            }
        };
        assert_eq!(gradients.len(), 8);
        losses.push(loss.into_scalar());
        model = optimizer.step(0.1, model, gradients);
    }
    let mut weights = Weights(Vec::new());
    model.visit(&mut weights);
    (losses, weights.0)
}

struct Weights(Vec<f32>);

impl ModuleVisitor<B> for Weights {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.extend(param.val().into_data().to_vec::<f32>().expect("it is f32"));
    }
}

#[test]
fn a_pipeline_takes_the_steps_of_one_device() {
    for devices in worlds() {
        let one = train(&[devices[0]; 3], None);
        let mut before = None;
        for schedule in [Schedule::AllForward, Schedule::OneForwardOneBackward] {
            let all = train(&devices, Some(schedule));
            for (one, all) in [(&one.0, &all.0), (&one.1, &all.1)] {
                assert_eq!(one.len(), all.len());
                let worst = one.iter().zip(all).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst <= 1e-6, "{worst} with {schedule:?} on {devices:?}");
            }
            assert_eq!(*before.get_or_insert_with(|| all.clone()), all, "on {devices:?}");
        }
    }
}

#[test]
fn stages_may_have_no_parameters() {
    for devices in worlds() {
        let layer: Linear<B> = LinearConfig::new(4, 2).init(&devices[1]);
        let nothing: Vec<Linear<B>> = Vec::new();
        let micro_batch =
            || MicroBatch { input: numbers(1, [3, 4], &devices[0]), target: (), samples: 3 };
        let step = Pipeline::start(&devices[0], &nothing, |_, x: Tensor<B, 2>| x.tanh())
            .then(&devices[1], &layer, |layer, x| layer.forward(x))
            .then(&devices[2], &nothing, |_, x| x.powi_scalar(2))
            .step([micro_batch(), micro_batch()], Schedule::default(), |y, ()| y.mean());
        let mut step = step.expect("there are samples");
        let found: Tensor<Wgsl, 2> = step.gradients.remove(layer.weight.id).expect("it is there");
        let y = layer.forward(numbers(1, [3, 4], &devices[1]).tanh()).powi_scalar(2).mean();
        let mut gradients = GradientsParams::from_grads(y.backward(), &layer);
        let expected: Tensor<Wgsl, 2> = gradients.remove(layer.weight.id).expect("it is there");
        let tolerance = burn::tensor::Tolerance::<f32>::absolute(1e-6);
        found.into_data().assert_approx_eq(&expected.into_data(), tolerance);
    }
}

/// Both uses of a parameter have one node, so that its gradient has both.
#[test]
fn a_stage_may_use_a_parameter_twice() {
    for devices in worlds() {
        let layer: Linear<B> = LinearConfig::new(4, 4).init(&devices[0]);
        // Clones of a parameter that was not used yet would have values of their own.
        layer.num_params();
        let layers = vec![layer.clone(), layer.clone()];
        let through = |layers: &[Linear<B>], x: Tensor<B, 2>| {
            layers.iter().fold(x, |x, layer| layer.forward(x).tanh())
        };
        let x = || numbers(1, [3, 4], &devices[0]);
        let micro_batches = (0..2).map(|_| MicroBatch { input: x(), target: (), samples: 3 });
        let step = Pipeline::start(&devices[0], &layers, move |layers, x| through(layers, x)).step(
            micro_batches,
            Schedule::AllForward,
            |y, ()| y.mean(),
        );
        let mut step = step.expect("there are samples");
        let found: Tensor<Wgsl, 2> = step.gradients.remove(layer.weight.id).expect("it is there");
        let gradients = through(&layers, x()).mean().backward();
        let mut gradients = GradientsParams::from_grads(gradients, &layer);
        let expected: Tensor<Wgsl, 2> = gradients.remove(layer.weight.id).expect("it is there");
        let tolerance = burn::tensor::Tolerance::<f32>::absolute(1e-6);
        found.into_data().assert_approx_eq(&expected.into_data(), tolerance);
    }
}

#[test]
fn a_batch_without_samples_is_an_error() {
    let device = WgslDevice::Cpu;
    let layer: Linear<B> = LinearConfig::new(4, 2).init(&device);
    for samples in [None, Some(0)] {
        let micro_batches = samples.map(|samples| MicroBatch {
            input: Tensor::<B, 2>::ones([1, 4], &device),
            target: (),
            samples,
        });
        let step = Pipeline::start(&device, &layer, |layer, x| layer.forward(x)).step(
            micro_batches,
            Schedule::AllForward,
            |y, ()| y.mean(),
        );
        let error = step.expect_err("it is empty");
        assert!(matches!(error, ParallelError::NoSamples), "{error}");
    }
}

/// A copy to another device is waited for where the result is used, also by an op that is not computed yet.
#[test]
fn moving_to_another_gpu_does_not_wait() {
    for device in gpus() {
        let workers = Workers::threads([device; 2]).oversubscribed(true);
        let devices = workers.open().expect("they can be opened");
        // More than one piece of a transfer.
        for rows in [3, 3000] {
            let x = Tensor::<Wgsl, 2>::ones([rows, 1001], &devices[0]) * 2.0;
            let before = waits_on_thread();
            let moved = x.clone().transpose().to_device(&devices[1]);
            let unused = x.clone().to_device(&devices[1]);
            let more = moved.clone() + 1.0;
            assert_eq!(waits_on_thread(), before, "on {device}");
            drop((x, unused));
            let sum = more.sum_dim(1);
            assert_eq!(
                sum.into_data().to_vec::<f32>().expect("it is f32"),
                vec![3.0 * rows as f32; 1001]
            );
            let back = (moved.to_device(&devices[0]) * 0.5).into_data();
            assert!(back.to_vec::<f32>().expect("it is f32").iter().all(|x| *x == 1.0));
        }
        let flags = Tensor::<Wgsl, 1, Int>::from_ints([1, 5], &devices[0]).equal_elem(5);
        let flags = flags.to_device(&devices[1]).int().into_data();
        assert_eq!(flags.iter::<i32>().collect::<Vec<_>>(), [0, 1], "on {device}");
    }
}
