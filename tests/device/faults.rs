//! Faults on purpose at every point of a training step: the step ends with a right result or a
//! clear error, nothing leaks, and training goes on afterwards.
//!
//! These tests run one at a time, because some lose the device.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use burn_wgsl::runtime::Fault;
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{self, hide_panics_outside, serial_guard};

type B = Autodiff<Wgsl>;

/// The most points of a step at which a fault is tried.
const MAX_POINTS: u64 = 200;

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    out: Linear<B>,
}

/// Trains a new model for one step on the same data, and returns its loss and new weights. The
/// images are large enough to be uploaded in pieces.
fn step(device: &WgslDevice) -> Vec<f32> {
    let values = |len: usize, scale: f32| {
        (0..len).map(|i| ((i * 7919 % 1009) as f32 / 1009.0 - 0.5) * scale).collect::<Vec<f32>>()
    };
    let images = TensorData::new(values(96 * 784, 2.0), [96, 784]);
    let labels = TensorData::new((0..96).map(|i| i % 10).collect::<Vec<i32>>(), [96]);
    let mut model = Mlp::<B> {
        hidden: LinearConfig::new(784, 24).with_bias(true).init(device),
        out: LinearConfig::new(24, 10).init(device),
    };
    for (layer, len, shape) in
        [(&mut model.hidden, 784 * 24, [784, 24]), (&mut model.out, 240, [24, 10])]
    {
        let weight = TensorData::new(values(len, 0.2), shape);
        layer.weight =
            burn::module::Param::from_tensor(Tensor::from_data(weight, device).require_grad());
        layer.bias =
            layer.bias.take().map(|bias| bias.map(|bias| bias.zeros_like().require_grad()));
    }
    let images = Tensor::<B, 2>::from_data(images, device);
    let labels = Tensor::<B, 1, Int>::from_data(labels, device);
    let logits = model.out.forward(burn::tensor::activation::relu(model.hidden.forward(images)));
    let loss = CrossEntropyLossConfig::new().init(device).forward(logits, labels);
    let grads = GradientsParams::from_grads(loss.backward(), &model);
    let model = AdamConfig::new().init().step(0.01, model, grads);
    let read = |data: TensorData| data.to_vec::<f32>().expect("the elements are f32");
    let mut results = read(loss.into_data());
    results.extend(read(model.out.weight.val().into_data()));
    results.extend(read(model.hidden.weight.val().into_data()));
    results
}

/// Runs the step with a fault at each point in turn, until no point is left. `prepare` runs before
/// each step. Returns at how many points the fault happened.
fn strike(device: &WgslDevice, fault: Fault, prepare: impl Fn()) -> u64 {
    let expected = step(device);
    for point in 0..MAX_POINTS {
        prepare();
        common::runtime_of(device).sync().expect("the device works");
        let in_use = common::runtime_of(device).memory().in_use;
        let struck = common::runtime_of(device);
        struck.plan_fault(fault, point);
        let result = catch_unwind(AssertUnwindSafe(|| step(device)));
        let happened = !struck.cancel_fault();
        match result {
            Ok(values) => assert_eq!(values, expected, "{fault:?} at point {point}"),
            Err(panic) => {
                let message = common::failure("", panic);
                let clear = ["out of memory", "lost", "does not compile", "a test failed"];
                assert!(happened, "{fault:?} did not happen, but: {message}");
                assert!(
                    clear.iter().any(|text| message.contains(text)),
                    "{fault:?} at point {point}: {message}"
                );
            }
        }
        drop(struck);
        // An error that the step did not meet is reported now.
        let _ = common::runtime_of(device).sync();
        assert_eq!(step(device), expected, "after {fault:?} at point {point}");
        common::runtime_of(device).sync().expect("the device works");
        if fault != Fault::Loss {
            let now = common::runtime_of(device).memory().in_use;
            assert_eq!(now, in_use, "memory after {fault:?} at point {point}");
        }
        if !happened {
            return point;
        }
    }
    MAX_POINTS
}

#[test]
fn every_fault_at_every_point_leaves_a_right_result_or_a_clear_error() {
    let _guard = serial_guard();
    let _hidden = hide_panics_outside(file!());
    for device in common::gpus() {
        let reopen = || burn_wgsl::close(&device).expect("the device exists");
        let trim = || Wgsl::memory_cleanup(&device);
        let struck = [
            (Fault::ShortOfMemory, strike(&device, Fault::ShortOfMemory, trim)),
            (Fault::OutOfMemory, strike(&device, Fault::OutOfMemory, trim)),
            (Fault::Upload, strike(&device, Fault::Upload, || {})),
            (Fault::Map, strike(&device, Fault::Map, || {})),
            (Fault::Submit, strike(&device, Fault::Submit, || {})),
            (Fault::SubmitPanic, strike(&device, Fault::SubmitPanic, || {})),
            (Fault::Loss, strike(&device, Fault::Loss, || {})),
            (Fault::Compile, strike(&device, Fault::Compile, reopen)),
        ];
        println!("{device}: points with faults: {struck:?}");
        for (fault, points) in struck {
            assert!(points > 0, "{fault:?} never happened on {device}");
        }
    }
}

/// Returns whether an op panics, or its result cannot be read: a pending op fails when it is
/// computed.
fn is_lost(op: impl FnOnce() -> Tensor<Wgsl, 1>) -> bool {
    catch_unwind(AssertUnwindSafe(op)).map_or(true, |result| result.try_into_data().is_err())
}

#[test]
fn results_of_a_failed_submission_are_never_read() {
    let _guard = serial_guard();
    let _hidden = hide_panics_outside(file!());
    for device in common::gpus() {
        let x = Tensor::<Wgsl, 1>::ones([100], &device);
        Wgsl::sync(&device).expect("the device works");
        let y = x.clone() + 1.0;
        common::runtime_of(&device).plan_fault(Fault::Submit, 0);
        let error = Wgsl::sync(&device).expect_err("the submission fails").to_string();
        assert!(error.contains("a test failed"), "{error}");
        // Both are operands of a lost result: `y` was never computed, `z` would be computed from
        // it.
        assert!(is_lost(|| y.clone() * 2.0), "an op accepted a lost operand");
        let error = y.try_into_data().expect_err("the result is lost").to_string();
        assert!(error.contains("contents of a tensor are lost"), "{error}");
        // An op that overwrites a lost operand.
        let overwritten = Tensor::<Wgsl, 1>::ones([1 << 18], &device) + 1.0;
        common::runtime_of(&device).plan_fault(Fault::Submit, 0);
        Wgsl::sync(&device).expect_err("the submission fails");
        assert!(is_lost(|| overwritten * 2.0), "an op overwrote a lost operand");
        let kept = x.into_data().to_vec::<f32>().expect("the elements are f32");
        assert_eq!(kept, [1.0; 100], "a tensor of an earlier submission");
    }
}

#[test]
fn every_tensor_around_a_failed_submission_is_right_or_lost() {
    let _guard = serial_guard();
    let _hidden = hide_panics_outside(file!());
    for device in common::gpus() {
        // Large enough that ops overwrite operands that nothing else uses.
        let len = 1 << 18;
        let mut lost = 0;
        let runs = (0..6).flat_map(|point| [(point, 1), (point, 3)]);
        for ((point, ops), fused) in runs.flat_map(|run| [(run, false), (run, true)]) {
            burn_wgsl::set_fusion(fused);
            let start = Tensor::<Wgsl, 1>::zeros([len], &device);
            Wgsl::sync(&device).expect("the device works");
            common::runtime_of(&device).plan_fault(Fault::Submit, point);
            let mut sums = vec![(start, 0.0)];
            for step in 1..=300 {
                let (last, value) = sums.last().expect("there is a first").clone();
                // Errors are caught, and the program goes on with what it has.
                let next = catch_unwind(AssertUnwindSafe(|| {
                    (1..ops).fold(last + 1.0, |sum, _| sum * 1.0)
                }));
                if let Ok(next) = next {
                    sums.push((next, value + 1.0));
                }
                if fused && step % 16 == 0 {
                    // Errors are for the tensors to report.
                    let _ = Wgsl::sync(&device);
                }
                if step % 4 != 0 && sums.len() > 1 {
                    sums.remove(0);
                }
            }
            common::runtime_of(&device).cancel_fault();
            for (tensor, value) in sums {
                match tensor.try_into_data() {
                    Ok(data) => {
                        let values = data.to_vec::<f32>().expect("the elements are f32");
                        assert!(values.iter().all(|&x| x == value), "point {point}: {}", values[0]);
                    }
                    Err(_) => lost += 1,
                }
            }
        }
        assert!(lost > 0, "no submission failed on {device}");
    }
}
