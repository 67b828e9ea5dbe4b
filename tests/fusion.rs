//! Fused elementwise ops: few launches, each kernel compiled once, and the results of separate ops.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use burn::module::AutodiffModule;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLoss;
use burn::nn::pool::MaxPool2dConfig;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::{log_softmax, relu, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, FloatDType, Int, Tensor, TensorData, TensorPrimitive};
use burn_backend::ops::ModuleOps;
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::runtime::{Event, Observer, Runtime};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, set_fusion};
use common::Tolerance;

type B = Autodiff<Wgsl>;

/// Counts the launches of each kernel.
#[derive(Default)]
struct Launches(Mutex<BTreeMap<String, usize>>);

impl Observer for Launches {
    fn event(&self, _op: &'static str, event: Event<'_>) {
        if let Event::Dispatch { kernel, .. } = event {
            *self.0.lock().expect("no observer panics").entry(kernel.to_string()).or_default() += 1;
        }
    }
}

/// A training step, which returns the loss.
type Step = Box<dyn FnMut() -> Tensor<Wgsl, 1>>;

fn training<M: AutodiffModule<B> + 'static>(
    model: M,
    loss: impl Fn(&M) -> Tensor<B, 1> + 'static,
) -> Step {
    let mut adam = AdamConfig::new().init();
    let mut next = Some(model);
    Box::new(move || {
        let model = next.take().expect("the previous step returned a model");
        let loss = loss(&model);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        next = Some(adam.step(1e-3, model, gradients));
        loss.inner()
    })
}

fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<B, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

fn labels(count: usize, device: &WgslDevice) -> Tensor<B, 1, Int> {
    let labels: Vec<i32> = (0..count as i32).map(|index| index % 10).collect();
    Tensor::from_data(TensorData::new(labels, [count]), device)
}

fn mlp(device: &WgslDevice) -> Step {
    let (x, labels) = (random([32, 784], device), labels(32, device));
    let model: (Linear<B>, Linear<B>) =
        (LinearConfig::new(784, 512).init(device), LinearConfig::new(512, 10).init(device));
    let loss = CrossEntropyLoss::new(None, device);
    training(model, move |(first, second)| {
        loss.forward(second.forward(relu(first.forward(x.clone()))), labels.clone())
    })
}

fn cnn(device: &WgslDevice) -> Step {
    let (x, labels) = (random([4, 1, 28, 28], device), labels(4, device));
    let conv = |from, to| {
        Conv2dConfig::new([from, to], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
    };
    let model: (Conv2d<B>, Conv2d<B>, Linear<B>, Linear<B>) = (
        conv(1, 32).init(device),
        conv(32, 64).init(device),
        LinearConfig::new(64 * 7 * 7, 128).init(device),
        LinearConfig::new(128, 10).init(device),
    );
    let pool = MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init();
    let loss = CrossEntropyLoss::new(None, device);
    training(model, move |(conv1, conv2, linear1, linear2)| {
        let x = pool.forward(relu(conv1.forward(x.clone())));
        let x = pool.forward(relu(conv2.forward(x)));
        let x = relu(linear1.forward(x.flatten::<2>(1, 3)));
        loss.forward(linear2.forward(x), labels.clone())
    })
}

fn transformer(device: &WgslDevice) -> Step {
    let (x, target) = (random([2, 64, 128], device), random([2, 64, 128], device));
    let model: (TransformerEncoder<B>, Linear<B>) = (
        TransformerEncoderConfig::new(128, 512, 4, 2).with_dropout(0.0).init(device),
        LinearConfig::new(128, 128).init(device),
    );
    training(model, move |(encoder, head)| {
        let y = head.forward(encoder.forward(TransformerEncoderInput::new(x.clone())));
        let error = y - target.clone();
        (error.clone() * error).mean()
    })
}

/// Returns the device of a runtime of `common::runtimes`.
fn device_of(runtime: &Arc<Runtime>) -> WgslDevice {
    let is_same = |device: &WgslDevice| match device.resolve() {
        Ok(ResolvedDevice::Adapter(index)) => {
            Runtime::of(index).is_ok_and(|other| Arc::ptr_eq(&other, runtime))
        }
        _ => false,
    };
    common::gpus().into_iter().find(is_same).expect("it is one of them")
}

/// Returns the launches of each kernel during `work`, and until the device has finished.
fn launches(
    runtime: &Runtime,
    device: &WgslDevice,
    work: impl FnOnce(),
) -> BTreeMap<String, usize> {
    set_fusion(true);
    Wgsl::sync(device).expect("the device works");
    let launches = Arc::new(Launches::default());
    runtime.observe(Some(launches.clone()));
    work();
    Wgsl::sync(device).expect("the device works");
    runtime.observe(None);
    launches.0.lock().expect("no observer panics").clone()
}

/// A model and the most launches in a step.
struct Example {
    name: &'static str,
    step: fn(&WgslDevice) -> Step,
    limit: usize,
}

const EXAMPLES: [Example; 3] = [
    Example { name: "MLP", step: mlp, limit: 25 },
    Example { name: "CNN", step: cnn, limit: 60 },
    Example { name: "transformer", step: transformer, limit: 120 },
];

#[test]
fn a_training_step_launches_few_kernels() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        for Example { name, step, limit } in EXAMPLES {
            set_fusion(true);
            let mut step = step(&device);
            (0..4).for_each(|_| drop(step()));
            // Two steps: what one leaves pending, the next computes.
            let launches = launches(&runtime, &device, || (0..2).for_each(|_| drop(step())));
            let count = launches.values().sum::<usize>() / 2;
            assert!(
                count <= limit,
                "{name}: {count} launches in a step on {device}: {launches:#?}"
            );
            if !runtime.binds_whole_buffers() {
                continue;
            }
            // The parameters of the optimizer are computed together.
            let optimizer = launches.iter().filter(|(kernel, _)| kernel.contains("pages:"));
            let optimizer: usize =
                optimizer.filter(|(k, _)| k.contains("sqrt")).map(|(_, count)| count).sum();
            assert!((2..=4).contains(&optimizer), "{name}: {launches:#?}");
        }
    }
}

/// Softmax and norms have a kernel each way, and norms another one for the sums of the gradients of
/// parameters.
#[test]
fn softmax_and_norms_have_a_kernel_each_way() {
    type Op = fn(Tensor<B, 2>, Tensor<B, 1>) -> Tensor<B, 2>;
    const OPS: [(&str, usize, Op); 3] = [
        ("softmax", 1, |x, _| softmax(x, 1)),
        ("log_softmax", 1, |x, _| log_softmax(x, 1)),
        ("layer_norm", 2, |x, gamma| {
            let beta = gamma.clone().into_primitive().tensor();
            let [x, gamma] = [x.into_primitive().tensor(), gamma.into_primitive().tensor()];
            let y = B::layer_norm(x, gamma, Some(beta), 1e-5);
            Tensor::from_primitive(TensorPrimitive::Float(y))
        }),
    ];
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let x = random::<2>([512, 64], &device).require_grad();
        let gamma = Tensor::<B, 1>::ones([64], &device).require_grad();
        let weights = random::<2>([512, 64], &device).inner();
        for (name, backward_limit, op) in OPS {
            let mut y = None;
            let forward = launches(&runtime, &device, || y = Some(op(x.clone(), gamma.clone())));
            assert_eq!(forward.values().sum::<usize>(), 1, "{name}: {forward:#?}");
            let y = y.expect("the op has run");
            // The product makes the gradient of the result; the sum would be a launch.
            let y = y * Tensor::from_inner(weights.clone());
            let mut gradients = None;
            let backward = launches(&runtime, &device, || {
                let all = y.backward();
                gradients = Some((x.grad(&all), gamma.grad(&all)));
            });
            let gradients_of_ops: usize = backward
                .iter()
                .filter(|(kernel, _)| !kernel.starts_with("fused"))
                .map(|(_, count)| count)
                .sum();
            assert!(gradients_of_ops <= backward_limit, "{name}: {backward:#?}");
            assert!(gradients.is_some_and(|(of_x, _)| of_x.is_some()), "{name}");
        }
    }
}

/// In a process that is warm from the start: kernels for the first second would count too.
#[test]
#[ignore = "a step of the test below"]
fn train() {
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        for Example { name, step, .. } in EXAMPLES {
            set_fusion(true);
            let mut step = step(&device);
            let mut steps = |count: usize| {
                let launches =
                    launches(&runtime, &device, || (0..count).for_each(|_| drop(step())));
                launches.into_keys().collect::<BTreeSet<String>>()
            };
            // What the second step leaves pending, the third computes.
            let first = steps(3);
            let later = steps(6);
            let new: Vec<&String> = later.difference(&first).collect();
            assert!(new.is_empty(), "{name} on {device}: {new:#?}");
        }
    }
}

#[test]
fn a_training_loop_compiles_nothing_after_its_first_steps() {
    common::assert_success(&common::run_child("train", &[("BURN_WGSL_WARM", "1")]));
}

/// Ops that mix views, broadcasts, types, clones, drops and partial reads.
fn mixture(device: &WgslDevice) -> Vec<TensorData> {
    let ramp = |len: i64| Tensor::<Wgsl, 1, Int>::arange(0..len, device);
    let x = (ramp(6 * 35).float() * 0.37 - 20.0).reshape([6, 35]);
    let row = (ramp(35).float() + 1.0).reshape([1, 35]);
    let column = ramp(6).float().reshape([6, 1]).exp();
    let sum = x.clone() + row.clone();
    let kept = sum.clone() * 2.0;
    let scaled = sum.sin() / column.clone();
    let mask = scaled.clone().greater_elem(0.01);
    let masked = scaled.clone().mask_where(mask.clone(), x.clone() * row);
    let turned = masked.clone().transpose() + 1.0;
    let integers = masked.clone().int() * 3 - turned.clone().transpose().int();
    let slice = turned.clone().slice([3..30, 1..5]).exp().log() - 0.5;
    let half = x.clone().cast(FloatDType::F16) * 1.5 + scaled.cast(FloatDType::F16);
    let large = Tensor::<Wgsl, 1>::ones([70_001], device) * 3.0;
    let large = (large.clone() + large.clone().sqrt()) * large;
    vec![
        kept.into_data(),
        mask.into_data(),
        slice.into_data(),
        integers.into_data(),
        half.cast(FloatDType::F32).into_data(),
        (masked.sum() + column.sum()).into_data(),
        large.narrow(0, 69_990, 11).into_data(),
    ]
}

#[test]
fn fused_ops_have_the_results_of_separate_ones() {
    let _guard = common::serial_guard();
    for device in common::gpus() {
        set_fusion(false);
        let separate = mixture(&device);
        set_fusion(true);
        let fused = mixture(&device);
        for (index, (fused, separate)) in fused.iter().zip(&separate).enumerate() {
            let tolerance = Tolerance { relative: 1e-5, absolute: 1e-5 };
            common::assert_close(&format!("result {index}"), fused, separate, tolerance);
        }
        assert_eq!(mixture(&device), fused, "the same bits again on {device}");
    }
}

#[test]
fn a_pending_result_keeps_the_values_of_its_operands() {
    let _guard = common::serial_guard();
    for device in common::gpus() {
        set_fusion(true);
        let x = Tensor::<Wgsl, 2>::ones([64, 64], &device);
        let y = x.clone() * 2.0;
        // Writes to the memory of `x`, unless something needs it.
        let x = x.slice_assign([0..1, 0..64], Tensor::zeros([1, 64], &device));
        let z = y.clone() + x.clone();
        let x = x.slice_assign([1..2, 0..64], Tensor::zeros([1, 64], &device));
        let sums = [x.sum(), y.sum(), z.sum()].map(|sum| sum.into_scalar());
        assert_eq!(sums, [62.0 * 64.0, 2.0 * 4096.0, 2.0 * 4096.0 + 63.0 * 64.0], "on {device}");
    }
}

#[test]
fn a_chain_is_one_launch() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let x = Tensor::<Wgsl, 1>::ones([1 << 16], &device);
        let launches = launches(&runtime, &device, || {
            let mut y = ((x.clone() * 2.0 + 1.0).exp() - 3.0).sqrt() / 7.0;
            y = (y + x.clone()).tanh();
            assert!((y.max().into_scalar() - 0.9202).abs() < 1e-3);
        });
        let fused = launches.iter().filter(|(kernel, _)| kernel.starts_with("fused"));
        assert_eq!(fused.map(|(_, count)| count).sum::<usize>(), 1, "{launches:#?}");
    }
}

#[test]
fn what_is_dropped_is_not_computed() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let x = Tensor::<Wgsl, 1>::ones([1000], &device);
        let in_use = runtime.memory().in_use;
        let launches = launches(&runtime, &device, || {
            for _ in 0..1000 {
                drop(x.clone().exp() + 1.0);
            }
        });
        // `x` itself, if it was pending.
        assert!(launches.values().sum::<usize>() <= 1, "{launches:#?}");
        assert!(runtime.memory().in_use <= in_use + 8192);
    }
}
