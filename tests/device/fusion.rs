//! Fused elementwise ops: few launches, each kernel compiled once, and the results of separate ops.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use burn::nn::{BatchNorm, BatchNormConfig};
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::module::{attention, conv2d, linear};
use burn::tensor::ops::{AttentionModuleOptions, ConvOptions};
use burn::tensor::quantization::{QuantLevel, QuantScheme, QuantStore, QuantValue};
use burn::tensor::{
    Bool, DType, Distribution, FloatDType, Int, Tensor, TensorData, TensorPrimitive, s,
};
use burn_backend::ops::ModuleOps;
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::runtime::{Event, Observer, Origin, Runtime};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast, set_fusion};

use crate::common::{self, Tolerance, test_alone};

#[path = "../../benches/shared/burn_0_21.rs"]
#[allow(clippy::clone_on_copy, unused_imports, dead_code, reason = "the comparison uses more")]
mod burn_api;
#[path = "../../benches/shared/models.rs"]
mod models;

use models::Step;

type Inner = Wgsl;
type B = Autodiff<Wgsl>;

/// Counts the launches of each kernel.
#[derive(Default)]
struct Launches(Mutex<BTreeMap<String, usize>>);

impl Observer for Launches {
    fn event(&self, _: Origin, event: Event<'_>) {
        if let Event::Dispatch { kernel, .. } = event {
            *self.0.lock().expect("no observer panics").entry(kernel.to_string()).or_default() += 1;
        }
    }
}

fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<B, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

fn mlp(device: &WgslDevice) -> Step {
    models::mlp(random([32, 784], device), device)
}

fn cnn(device: &WgslDevice) -> Step {
    models::cnn(random([4, 1, 28, 28], device), device)
}

fn transformer(device: &WgslDevice) -> Step {
    let [x, target] = [(); 2].map(|()| random([2, 64, 128], device));
    models::transformer(x, target, [2, 4, 512], device)
}

fn lstm(device: &WgslDevice) -> Step {
    models::lstm(random([4, 4, 32], device), device)
}

/// Returns the device of a runtime of `common::runtimes`.
pub fn device_of(runtime: &Arc<Runtime>) -> WgslDevice {
    let is_same = |device: &WgslDevice| match device.resolve() {
        Ok(ResolvedDevice::Adapter(index)) => {
            Runtime::of(index).is_ok_and(|other| Arc::ptr_eq(&other, runtime))
        }
        _ => false,
    };
    common::gpus().into_iter().find(is_same).expect("it is one of them")
}

/// Returns the launches of each kernel during `work`, and until the device has finished.
pub fn launches(
    runtime: &Runtime,
    device: &WgslDevice,
    work: impl FnOnce(),
) -> BTreeMap<String, usize> {
    set_fusion(true);
    Wgsl::sync(device).expect("the device works");
    let launches = Arc::new(Launches::default());
    let observation = runtime.observe(launches.clone());
    work();
    Wgsl::sync(device).expect("the device works");
    drop(observation);
    launches.0.lock().expect("no observer panics").clone()
}

/// A model and the most launches in a step, on GPUs and on software adapters.
struct Example {
    name: &'static str,
    step: fn(&WgslDevice) -> Step,
    limits: [usize; 2],
}

const EXAMPLES: [Example; 3] = [
    Example { name: "MLP", step: mlp, limits: [22, 28] },
    Example { name: "CNN", step: cnn, limits: [40, 60] },
    Example { name: "transformer", step: transformer, limits: [100, 140] },
];

/// Its steps need as little memory as some tensors that wait for their launch.
const LSTM: Example = Example { name: "LSTM", step: lstm, limits: [160, 200] };

#[test]
fn a_training_step_launches_few_kernels() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        for Example { name, step, limits } in EXAMPLES.into_iter().chain([LSTM]) {
            let limit = limits[usize::from(runtime.is_software())];
            set_fusion(true);
            let mut step = step(&device);
            (0..4).for_each(|_| drop(step()));
            // Two steps: what one leaves pending, the next computes.
            let launches = launches(&runtime, &device, || (0..2).for_each(|_| drop(step())));
            let count = launches.values().sum::<usize>() / 2;
            println!("{name}: {count} launches in a step on {device}");
            assert!(
                count <= limit,
                "{name}: {count} launches in a step on {device}: {launches:#?}"
            );
            if !runtime.binds_whole_buffers() || runtime.is_software() {
                continue;
            }
            // The parameters of the optimizer are computed together.
            let optimizer = launches.iter().filter(|(kernel, _)| kernel.contains("pages:"));
            let optimizer: usize =
                optimizer.filter(|(k, _)| k.contains("sqrt")).map(|(_, count)| count).sum();
            assert!((2..=6).contains(&optimizer), "{name}: {launches:#?}");
        }
    }
}

/// A batch normalisation with its gradients: the result and the gradient of the input are one launch each, besides the
/// means, which are over several axes at once.
#[test]
fn batch_normalisation_launches_few_kernels() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        set_fusion(true);
        let norm: BatchNorm<Autodiff<Wgsl>> = BatchNormConfig::new(8).init(&device);
        let x = Tensor::<Autodiff<Wgsl>, 4>::ones([4, 8, 6, 6], &device).require_grad();
        let step = || {
            let gradients = norm.forward(x.clone()).powi_scalar(2).mean().backward();
            let of_x = x.grad(&gradients).expect("it is there").into_data();
            let parameters = [norm.gamma.val(), norm.beta.val()];
            (of_x, parameters.map(|leaf| leaf.grad(&gradients).expect("it is there").into_data()))
        };
        drop(step());
        let launches = launches(&runtime, &device, || drop(step()));
        let count: usize = launches.values().sum();
        // There, the ops are by themselves.
        let limit = if runtime.is_software() { 40 } else { 14 };
        assert!(count <= limit, "{count} launches on {device}: {launches:#?}");
    }
}

/// Conversions are part of other launches where they can be. Software adapters fuse less.
#[test]
fn autocast_adds_few_launches() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes().into_iter().filter(|runtime| !runtime.is_software()) {
        let device = device_of(&runtime);
        // With matrix units, gradients of attention are three launches, not two, and f16 takes one for bounds.
        let limit = if runtime.info().units(16).next().is_some() { 117 } else { 115 };
        for Example { name, step, .. } in EXAMPLES.into_iter().chain([LSTM]) {
            let launches = |precision| {
                let _scope = autocast(&device, precision);
                let mut step = step(&device);
                // Kernels of their own exist after the first steps.
                (0..6).for_each(|_| drop(step()));
                launches(&runtime, &device, || (0..2).for_each(|_| drop(step())))
            };
            let f32: usize = launches(Precision::F32).values().sum();
            for precision in [Precision::F16, Precision::Bf16] {
                let launches = launches(precision);
                let lower: usize = launches.values().sum();
                println!("{name}: {lower} launches in {precision} on {device}, {f32} in f32");
                assert!(
                    100 * lower <= limit * f32,
                    "{name}: {lower} launches in {precision} on {device}, {f32} in f32: {launches:#?}"
                );
            }
        }
    }
}

/// The memory in use and its peak, in bytes.
#[derive(Default)]
struct Memory(Mutex<(i64, i64)>);

impl Observer for Memory {
    fn event(&self, _: Origin, event: Event<'_>) {
        let mut memory = self.0.lock().expect("no observer panics");
        match event {
            Event::Allocate { bytes, .. } => memory.0 += bytes as i64,
            Event::Release { bytes, .. } => memory.0 -= bytes as i64,
            _ => {}
        }
        memory.1 = memory.1.max(memory.0);
    }
}

/// Pending results keep what they are computed from, but are no memory themselves.
#[test]
fn fusion_needs_little_more_memory() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        for Example { name, step, .. } in EXAMPLES {
            let peak = |fusion: bool| {
                set_fusion(fusion);
                Wgsl::sync(&device).expect("the device works");
                let memory = Arc::new(Memory::default());
                let observation = runtime.observe(memory.clone());
                let mut step = step(&device);
                for _ in 0..3 {
                    drop(step());
                    Wgsl::sync(&device).expect("the device works");
                }
                drop((observation, step));
                set_fusion(true);
                memory.0.lock().expect("no observer panics").1
            };
            let (eager, fused) = (peak(false), peak(true));
            println!("{name} on {device}: {eager} bytes without fusion, {fused} with");
            assert!(fused * 10 <= eager * 11, "{name} on {device}: {fused} bytes, not {eager}");
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
    common::assert_success(&common::run_child(test_alone!("train"), &[("BURN_WGSL_WARM", "1")]));
}

/// Ops that mix views, broadcasts, types, clones, drops and partial reads.
fn mixture(device: &WgslDevice) -> Vec<TensorData> {
    let ramp = |len: i64| Tensor::<Wgsl, 1, Int>::arange(0..len, device);
    // Exact, however a compiler contracts products and sums: integers are made of it.
    let x = (ramp(6 * 35).float() * 0.375 - 20.0).reshape([6, 35]);
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
            let y: Vec<f32> = y.into_data().to_vec().expect("they are f32");
            assert!((y[0] - 0.9202).abs() < 1e-3, "{}", y[0]);
        });
        let fused = launches.iter().filter(|(kernel, _)| kernel.starts_with("fused"));
        assert_eq!(fused.map(|(_, count)| count).sum::<usize>(), 1, "{launches:#?}");
    }
}

/// A program whose ops differ without end compiles only so many kernels. It goes on with those that
/// there are, with the same results.
#[test]
fn the_number_of_generated_kernels_is_limited() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        // Each bit of the number chooses an op.
        let ops = |number: usize| {
            let x = Tensor::<Wgsl, 1, Int>::arange(0..100, &device).float() * 0.125;
            let weights = Tensor::<Wgsl, 2>::ones([3, 100], &device);
            let y = (0..6).fold(x, |y, bit| match number >> bit & 1 {
                0 => y * 2.0 + 0.5,
                _ => (y - 1.0).abs(),
            });
            let sums = (weights * y.clone().unsqueeze() - 3.0).sum_dim(1);
            [floats(sums), floats(y.clone().reshape([10, 10]).matmul(y.reshape([10, 10])) * 0.5)]
        };
        let limit = runtime.generated_kernels() + 20;
        let all: Vec<_> = (0..64).map(ops).collect();
        assert!(runtime.generated_kernels() > limit, "they differ on {device}");
        burn_wgsl::close(&device).expect("the device exists");
        let runtime = common::runtime_of(&device);
        runtime.set_max_generated_kernels(20);
        for (number, expected) in all.iter().enumerate() {
            assert_eq!(&ops(number), expected, "program {number} on {device}");
        }
        // A kernel with a prologue or an epilogue may be the last.
        let count = runtime.generated_kernels();
        assert!(count <= 20 + 2, "{count} kernels were generated on {device}");
        // What was compiled before is still used.
        let launches = launches(&runtime, &device, || drop(ops(0)));
        assert!(launches.values().sum::<usize>() < 8, "{launches:#?}");
        burn_wgsl::close(&device).expect("the device exists");
    }
}

/// Returns the number of launches of kernels whose names contain a text.
fn count(launches: &BTreeMap<String, usize>, text: &str) -> usize {
    launches.iter().filter(|(kernel, _)| kernel.contains(text)).map(|(_, count)| count).sum()
}

fn floats<const D: usize>(tensor: Tensor<Wgsl, D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().to_vec().expect("they are f32")
}

/// Reductions, softmax and norms compute pending inputs where they read them.
#[test]
fn kernels_compute_pending_inputs() {
    type Op = fn(Tensor<Wgsl, 2>) -> Tensor<Wgsl, 2>;
    const OPS: [(&str, Op); 7] = [
        ("sum", |x| x.sum_dim(1)),
        ("sum of columns", |x| x.sum_dim(0)),
        ("mean of a transposed tensor", |x| x.transpose().mean_dim(0)),
        ("maximum", |x| x.max_dim(1)),
        ("argmax", |x| x.argmax(1).float()),
        ("softmax", |x| softmax(x, 1)),
        ("softmax of columns", |x| softmax(x, 0)),
    ];
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let x = random::<2>([96, 64], &device).inner();
        let row = x.clone().slice([3..4, 0..64]);
        floats(x.clone());
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let x = x.clone().cast(dtype);
            floats(x.clone());
            for (name, op) in OPS {
                let chain = || x.clone() * 3.0 + row.clone().cast(dtype).expand([96, 64]);
                set_fusion(false);
                let expected = floats(op(chain()));
                set_fusion(true);
                let mut found = Vec::new();
                let launches = launches(&runtime, &device, || found = floats(op(chain())));
                let tolerance = if dtype == DType::F32 { 1e-4 } else { 0.05 };
                for (found, expected) in found.iter().zip(&expected) {
                    let error = (found - expected).abs() / (1.0 + expected.abs());
                    assert!(error < tolerance, "{name} of {dtype:?} on {device}: {launches:#?}");
                }
                // 16-bit results are rounded between ops, and again after the kernel.
                assert_eq!(count(&launches, "input0=["), 1, "{name} of {dtype:?}: {launches:#?}");
            }
        }
    }
}

/// What is written into a slice, or beside others, is computed on its way there, and kept if something else needs it.
#[test]
fn copies_compute_what_they_copy() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let target = || Tensor::<Wgsl, 3>::zeros([2, 40, 16], &device) + 0.5;
        let x = random::<3>([40, 2, 16], &device).inner();
        let row = random::<3>([1, 2, 16], &device).inner();
        floats(x.clone());
        floats(row.clone());
        let value = || (x.clone() * row.clone().expand([40, 2, 16])).slice([0..12, 0..2, 0..16]);
        let place = [0..2, 5..17, 0..16];
        let assign = |keeps: bool| {
            let value = value();
            let kept = if keeps { value.clone() } else { Tensor::zeros([1, 1, 1], &device) };
            // The target is pending, too.
            let target = target().slice_assign(place.clone(), value.swap_dims(0, 1));
            [floats(target), floats(kept)].concat()
        };
        let repeated = || {
            let value = x.clone().slice([0..2, 0..1, 0..16]) * 2.0;
            floats(target().slice_assign([0..2, 5..17, 0..16], value.expand([2, 12, 16])))
        };
        let concatenated = || {
            let parts = [x.clone() + 1.0, x.clone().exp(), x.clone() * row.clone()];
            floats(Tensor::cat(parts.into(), 0))
        };
        set_fusion(false);
        // A whole part that is needed later, and shared operands.
        let held = || {
            let part = x.clone().exp() + 1.0;
            let all = Tensor::cat(
                vec![part.clone(), part.clone().swap_dims(0, 1).reshape([40, 2, 16])],
                0,
            );
            [floats(all), floats(part)].concat()
        };
        // Integers become elements of other types on their way.
        let integers = || {
            let indices = Tensor::<Wgsl, 1, Int>::arange(0..64, &device);
            let rows = indices.clone().remainder_scalar(5).float();
            let rest = (indices.clone() / 7).float();
            let masks =
                [indices.clone().remainder_scalar(2).equal_elem(0), indices.clone().lower_elem(9)];
            let masks = Tensor::cat(masks.into(), 0).float();
            let ints = Tensor::cat(vec![indices.clone().remainder_scalar(3), indices], 0).float();
            floats(Tensor::cat(vec![rows, rest, masks, ints], 0))
        };
        let expected =
            [assign(false), assign(true), concatenated(), repeated(), held(), integers()];
        set_fusion(true);
        let mut found = Vec::new();
        let computed = launches(&runtime, &device, || found.push(assign(false)));
        let kept = launches(&runtime, &device, || found.push(assign(true)));
        let joined = launches(&runtime, &device, || found.push(concatenated()));
        let repeats = launches(&runtime, &device, || found.push(repeated()));
        found.push(held());
        found.push(integers());
        for (found, expected) in found.concat().iter().zip(expected.concat()) {
            let error = (found - expected).abs() / (1.0 + expected.abs());
            assert!(error < 1e-5, "{found} instead of {expected} on {device}");
        }
        assert_eq!(count(&computed, "input0=["), 1, "{computed:#?}");
        assert_eq!(count(&kept, "input0=["), 0, "part of what is needed later: {kept:#?}");
        assert_eq!(
            (joined.values().sum::<usize>(), count(&joined, "input0=[")),
            (3, 3),
            "{joined:#?}"
        );
        assert_eq!(count(&joined, "out:y"), 0, "an unneeded result is written: {joined:#?}");
        assert_eq!(count(&repeats, "input0=["), 0, "{repeats:#?}");
    }
}

/// Attention of a few queries computes them, once for each workgroup, if they are narrow.
#[test]
fn attention_computes_its_queries() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        // Queries, keys, width; splits of the keys, and rows that are too wide.
        for [queries, keys, width] in [[1, 9, 8], [3, 40, 64], [5, 700, 128], [2, 30, 132]] {
            let [q, k, v] =
                [queries, keys, keys].map(|len| random::<4>([2, 3, len, width], &device).inner());
            let turns = random::<4>([1, 3, 1, width], &device).inner();
            for tensor in [&q, &k, &v, &turns] {
                floats(tensor.clone());
            }
            let attended = || {
                let q = q.clone() * turns.clone().cos().expand([2, 3, queries, width]);
                attention(q, k.clone(), v.clone(), None, None, AttentionModuleOptions::default())
            };
            set_fusion(false);
            let expected = floats(attended());
            set_fusion(true);
            let mut found = Vec::new();
            let launches = launches(&runtime, &device, || found = floats(attended()));
            for (found, expected) in found.iter().zip(&expected) {
                let error = (found - expected).abs() / (1.0 + expected.abs());
                assert!(error < 1e-4, "{found} instead of {expected} on {device}");
            }
            let computes = width <= 128 && !runtime.is_software();
            let label = format!("{queries} x {keys} x {width}: {launches:#?}");
            assert_eq!(count(&launches, "input0=["), usize::from(computes), "{label}");
        }
    }
}

/// The index of a maximum in splits computes a large pending input once.
#[test]
fn indices_of_long_lines_compute_their_input_once() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let tensors = [(); 5].map(|()| random::<2>([2, 9000], &device).inner());
        let input = || {
            let [a, b, c, d, e] = tensors.clone();
            (a * b + c) * d + e
        };
        let expected = {
            let values = floats(input());
            let lines = values.chunks(9000);
            let index = |line: &[f32]| {
                (0..line.len()).max_by(|&a, &b| line[a].total_cmp(&line[b])).expect("it is long")
            };
            lines.map(|line| index(line) as f32).collect::<Vec<_>>()
        };
        let mut found = Vec::new();
        let launches = launches(&runtime, &device, || found = floats(input().argmax(1).float()));
        assert_eq!(found, expected, "on {device}");
        assert_eq!(count(&launches, "input0=[x0:F32 x1:F32 x2:F32 x3:F32"), 1, "{launches:#?}");
        assert_eq!(count(&launches, "fused x0:F32 x1:F32"), 0, "{launches:#?}");
    }
}

/// Products of a row unpack quantised weights where they read them, whether the weights or their
/// transpose are contiguous.
#[test]
fn products_of_a_row_unpack_quantised_weights() {
    const SCHEMES: [(QuantValue, Option<u8>, bool); 4] = [
        (QuantValue::Q8S, None, false),
        (QuantValue::Q4F, Some(32), false),
        (QuantValue::Q4S, Some(48), true),
        (QuantValue::Q2S, Some(32), true),
    ];
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let x = random::<2>([1, 96], &device).inner();
        for (value, block, is_transposed) in SCHEMES {
            let level = block.map_or(QuantLevel::Tensor, |block| QuantLevel::block([block]));
            let scheme = QuantScheme::default().with_value(value).with_level(level);
            let scheme = scheme.with_store(QuantStore::Native);
            let shape = if is_transposed { [64, 96] } else { [96, 64] };
            let weight = random::<2>(shape, &device).inner().quantize_dynamic(&scheme);
            let product = |weight: Tensor<Wgsl, 2>| {
                let weight = if is_transposed { weight.transpose() } else { weight };
                linear(x.clone(), weight, None)
            };
            let dequantised = weight.clone().dequantize();
            floats(dequantised.clone());
            let expected = floats(product(dequantised));
            let mut found = Vec::new();
            let launches = launches(&runtime, &device, || {
                found = floats(product(weight.dequantize()));
            });
            let label = format!("{scheme:?} on {device}: {launches:#?}");
            for (found, expected) in found.iter().zip(&expected) {
                let error = (found - expected).abs() / (1.0 + expected.abs());
                assert!(error < 1e-4, "{found} instead of {expected}: {label}");
            }
            assert_eq!(count(&launches, "matvec"), 1, "{label}");
            assert_eq!(count(&launches, "input0=[x0:I32.Runs"), 1, "{label}");
        }
    }
}

/// A reduction writes the pending results on its way that are needed later.
#[test]
fn reductions_write_what_they_compute_on_the_way() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let x = random::<2>([96, 64], &device).inner();
        let expected: Vec<f32> = floats(x.clone()).iter().map(|x| x * 2.0).collect();
        for reduce in [|x: Tensor<Wgsl, 2>| x.sum_dim(0), |x: Tensor<Wgsl, 2>| x.sum_dim(1)] {
            let mut found = (Vec::new(), Vec::new(), 0.0);
            let launches = launches(&runtime, &device, || {
                let y = x.clone() * 2.0;
                let z = y.clone() + 1.0;
                let sum = reduce(z.clone() * 0.5).sum().into_scalar();
                found = (floats(y), floats(z), sum);
            });
            assert_eq!(count(&launches, "out:y0,y1]"), 1, "{launches:#?}");
            assert_eq!(count(&launches, "fused "), 0, "{launches:#?}");
            let sums: Vec<f32> = expected.iter().map(|y| y + 1.0).collect();
            assert_eq!((&found.0, &found.1), (&expected, &sums), "on {device}");
            let total = sums.iter().sum::<f32>() / 2.0;
            assert!((found.2 - total).abs() < 0.1, "{} is not {total}", found.2);
        }
        // Of a part of a tensor, nothing else is written.
        let y = x.clone() * 2.0;
        let part = y.clone().slice([0..48, 0..64]).sum().into_scalar();
        assert!((part - expected[..48 * 64].iter().sum::<f32>()).abs() < 0.1);
        assert_eq!(floats(y), expected, "on {device}");
    }
}

/// Products, convolutions, reductions, softmax and norms go on computing with their results.
#[test]
fn kernels_go_on_with_their_results() {
    type Op = fn(Tensor<Wgsl, 2>, Tensor<Wgsl, 2>) -> Tensor<Wgsl, 2>;
    const OPS: [(&str, Op); 6] = [
        ("product", |x, w| x.matmul(w)),
        ("product with a long k, which is split", |x, _| {
            x.clone().reshape([2, 3072]).matmul(x.reshape([3072, 2]))
        }),
        ("matrix and vector", |x, w| x.matmul(w.slice([0..64, 0..1]))),
        ("sum", |x, _| x.sum_dim(0)),
        ("softmax", |x, _| softmax(x, 1)),
        ("convolution", |x, w| {
            let weight = w.slice([0..9, 0..4]).swap_dims(0, 1).reshape([4, 1, 3, 3]);
            let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
            conv2d(x.reshape([1, 1, 96, 64]), weight, None, options).reshape([4 * 96, 64])
        }),
    ];
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let [x, w] = [[96, 64], [64, 32]].map(|shape| random::<2>(shape, &device).inner());
        let _ = (floats(x.clone()), floats(w.clone()));
        for (name, op) in OPS {
            for held in [false, true] {
                let run = || {
                    let product = op(x.clone(), w.clone());
                    let held = held.then(|| product.clone());
                    let row = x.clone().slice([5..6, 0..1]).expand(product.dims());
                    let y = (product * 0.5 + row).tanh();
                    // The last first, which computes both.
                    [y].into_iter().chain(held).map(floats).collect::<Vec<_>>()
                };
                set_fusion(false);
                let expected = run();
                set_fusion(true);
                let mut found = Vec::new();
                let launches = launches(&runtime, &device, || found = run());
                for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                    let error = (found - expected).abs();
                    assert!(error < 2e-3, "{name} on {device}, {held}: {launches:#?}");
                }
                // On software adapters, products and convolutions have none: they compile slowly.
                let large = ["product", "matrix and vector", "convolution"].contains(&name);
                let has_epilogue = !large || !runtime.is_software();
                let found = count(&launches, "output=[") > 0;
                assert_eq!(found, has_epilogue, "{name}, {held}: {launches:#?}");
                let stored = count(&launches, "out:y0,") > 0;
                assert_eq!(stored, held && has_epilogue, "{name}, {held}: {launches:#?}");
            }
        }
    }
}

/// Epilogues of sums of integers, which are also split. Ops on integers of one type only are in a
/// kernel.
fn sums_of_integers(device: &WgslDevice) -> Vec<TensorData> {
    let mut out = Vec::new();
    for dtype in [DType::I32, DType::U32, DType::I64, DType::U64] {
        for shape in [[6, 35], [3, 9000], [9000, 3]] {
            let count = (shape[0] * shape[1]) as i64;
            let x = Tensor::<Wgsl, 1, Int>::arange(0..count, device).cast(dtype).reshape(shape);
            for sum in [x.clone().sum_dim(0), x.clone().sum_dim(1), x.clone().max_dim(1)] {
                out.push((sum.clone() + 1).into_data());
                out.push((sum.clone() / 2 + sum % 7).into_data());
            }
            out.push(x.clone().sum().into_data());
            out.push(x.clone().mean_dim(1).into_data());
            // A power of two: every sum is exact, however the compiler contracts it.
            let floats = x.float() * 0.0078125;
            out.push((floats.sum_dim(1).int().cast(dtype) / 3 % 5).into_data());
        }
    }
    out
}

#[test]
fn sums_of_integers_have_the_results_of_separate_ops() {
    let _guard = common::serial_guard();
    for device in common::gpus() {
        let fused = sums_of_integers(&device);
        set_fusion(false);
        let separate = sums_of_integers(&device);
        set_fusion(true);
        for (fused, separate) in fused.iter().zip(&separate) {
            fused.assert_eq(separate, true);
        }
    }
}

/// The second of two launches computes what uses both.
#[test]
fn a_graph_of_two_launches_is_two_launches() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let x = random::<2>([96, 64], &device).inner();
        floats(x.clone());
        let launches = launches(&runtime, &device, || {
            let gate = softmax(x.clone(), 1) * 2.0;
            floats(gate * softmax(x.clone(), 0) + 1.0);
        });
        assert_eq!(launches.values().sum::<usize>(), 2, "{launches:#?}");
    }
}

/// Softmax and norms read and write 16 bits as they are stored.
#[test]
fn rows_are_read_and_written_in_16_bits() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        for dtype in [DType::F16, DType::BF16] {
            let x = random::<2>([96, 64], &device).inner().cast(dtype);
            floats(x.clone());
            let mut bytes = Vec::new();
            let launches = launches(&runtime, &device, || {
                bytes = softmax(x.clone(), 1).into_data().into_bytes().to_vec();
            });
            assert_eq!(bytes.len(), 2 * 96 * 64);
            assert_eq!(launches.values().sum::<usize>(), 1, "{dtype:?}: {launches:#?}");
        }
    }
}

/// A 16-bit tensor in f32 is not written for those who read it later, and what it is computed from is not overwritten.
#[test]
fn a_widened_tensor_stays_pending() {
    const LEN: usize = 1 << 20;
    let _guard = common::serial_guard();
    let values = |factor: f32| (0..LEN).map(|i| factor * (i % 999) as f32).collect::<Vec<_>>();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        for dtype in [DType::F16, DType::BF16] {
            let stored = Tensor::<Wgsl, 1>::from_data(&*values(0.5), &device).cast(dtype);
            let expected = [2.0, 1.0].map(|factor| {
                let round = |x: f32| match dtype {
                    DType::F16 => half::f16::from_f32(x).to_f32(),
                    _ => half::bf16::from_f32(x).to_f32(),
                };
                values(0.5).into_iter().map(|x| factor * round(x)).collect::<Vec<_>>()
            });
            let mut read = None;
            let launches = launches(&runtime, &device, || {
                let widened = stored.cast(DType::F32);
                let narrow = (widened.clone() * 2.0).cast(dtype);
                // In memory, without all that is deferred.
                let doubled = narrow.clone().into_data();
                drop(narrow);
                read = Some((doubled, floats(widened)));
            });
            assert_eq!(count(&launches, "out:y0,y"), 0, "{dtype:?} on {device}: {launches:#?}");
            let (doubled, widened) = read.expect("the launches were made");
            let doubled = doubled.convert::<f32>().to_vec::<f32>().expect("it is f32");
            assert_eq!([doubled, widened], expected, "{dtype:?} on {device}");
        }
    }
}

/// A launch writes 16-bit copies of several tensors, beside the tensors themselves: of 1 to 9 elements, and more.
#[test]
fn several_tensors_are_converted_to_16_bits_together() {
    let _guard = common::serial_guard();
    let sizes = [1usize, 2, 3, 4, 5, 6, 7, 8, 9, 63, 64, 65, 1000, 4099];
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        for dtype in [DType::F16, DType::BF16] {
            let values = |size: usize| (0..size).map(|i| i as f32 / 16.0 - 3.0).collect::<Vec<_>>();
            let x = sizes.map(|size| Tensor::<Wgsl, 1>::from_data(&*values(size), &device));
            let mut read = Vec::new();
            let launches = launches(&runtime, &device, || {
                let doubled = x.clone().map(|x| x * 2.0);
                let halves = doubled.clone().map(|x| x.cast(dtype));
                // The copies first: the tensors are computed with them.
                read = halves.into_iter().chain(doubled).map(floats).collect();
            });
            let expected = sizes.map(|size| values(size).iter().map(|x| x * 2.0).collect());
            let rounded = expected.clone().map(|values: Vec<f32>| {
                let round = |x: &f32| match dtype {
                    DType::F16 => half::f16::from_f32(*x).to_f32(),
                    _ => half::bf16::from_f32(*x).to_f32(),
                };
                values.iter().map(round).collect()
            });
            assert_eq!(read, [rounded, expected].concat(), "{dtype:?} on {device}");
            if !runtime.is_software() {
                assert!(count(&launches, "BATCHED") > 0, "{launches:#?}");
                // The readback converts the copies back.
                let most = 3 + sizes.len();
                assert!(launches.values().sum::<usize>() <= most, "{launches:#?}");
            }
        }
    }
}

/// Returns slices that were put into zeros: along each axis, in and out of groups of four, of
/// several types.
fn slices_among_zeros(device: &WgslDevice) -> Vec<TensorData> {
    let shape = [4, 6, 12];
    let count = shape.iter().product::<usize>() as i64;
    let mut out = Vec::new();
    for ranges in [
        [0..1, 0..6, 0..12],
        [2..4, 0..6, 0..12],
        [0..4, 1..2, 0..12],
        [0..4, 5..6, 0..12],
        [0..4, 0..6, 4..8],
        [0..4, 0..6, 3..12],
        [0..4, 0..6, 0..5],
        // No part of one axis.
        [0..4, 0..6, 0..12],
        [1..3, 0..6, 2..4],
    ] {
        for dtype in [DType::I32, DType::I64] {
            let part = Tensor::<Wgsl, 1, Int>::arange(1..count + 1, device)
                .cast(dtype)
                .reshape(shape)
                .slice(ranges.clone());
            let zeros = Tensor::<Wgsl, 3, Int>::zeros(shape, (device, dtype));
            let put = zeros.slice_assign(ranges.clone(), part.clone());
            out.push((put.clone() * 3).into_data());
            let zeros = Tensor::<Wgsl, 3, Bool>::zeros(shape, device);
            let put = zeros.slice_assign(ranges.clone(), part.greater_elem(100));
            out.push(put.bool_not().into_data());
        }
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let part = Tensor::<Wgsl, 1, Int>::arange(1..count + 1, device)
                .float()
                .cast(dtype)
                .reshape(shape)
                .slice(ranges.clone());
            let zeros = Tensor::<Wgsl, 3>::zeros(shape, (device, dtype));
            let put = zeros.slice_assign(ranges.clone(), part);
            out.push((put.clone() * 2.0 + 1.0).cast(DType::F32).into_data());
            // Read by another kernel.
            out.push(put.cast(DType::F32).sum_dim(1).into_data());
        }
    }
    // The last elements are no group of four.
    let part = Tensor::<Wgsl, 1>::ones([7], device) * 3.0;
    let put = Tensor::<Wgsl, 1>::zeros([21], device).slice_assign(s![13..20], part);
    out.push((put + 1.0).into_data());
    out
}

#[test]
fn slices_among_zeros_are_computed_in_the_kernels_that_read_them() {
    let _guard = common::serial_guard();
    for device in common::gpus() {
        let fused = slices_among_zeros(&device);
        set_fusion(false);
        let separate = slices_among_zeros(&device);
        set_fusion(true);
        for (index, (fused, separate)) in fused.iter().zip(&separate).enumerate() {
            fused.assert_eq(separate, true);
            assert!(fused.num_elements() > 0, "{index}");
        }
    }
    // As in a product of which the result is split into queries, keys and values.
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let x = random::<2>([64, 96], &device).require_grad();
        floats(x.clone().inner());
        let weights = random::<2>([64, 32], &device);
        floats(weights.clone().inner());
        let launches = launches(&runtime, &device, || {
            let parts = x.clone().chunk(3, 1);
            let [q, k, v] = <[_; 3]>::try_from(parts).expect("three parts");
            let y = q * weights.clone() + (k + v) * weights.clone();
            let grads = y.backward();
            floats(x.grad(&grads).expect("x has a gradient"));
        });
        // Each way: the ops themselves.
        assert!(launches.values().sum::<usize>() <= 4, "{launches:#?}");
    }
}

/// The launch of a result that is dropped runs all the same: benchmarks rely on it.
#[test]
fn dropped_launches_run() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let x = random::<2>([64, 64], &device).inner();
        let launches =
            launches(&runtime, &device, || (0..5).for_each(|_| drop(x.clone().matmul(x.clone()))));
        assert_eq!(count(&launches, "matmul "), 5, "{launches:#?}");
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
