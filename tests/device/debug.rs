//! The debug modes: the op that fails, the first value that is not finite, runs that differ.
//!
//! The modes are those of the process, so these tests run one at a time.

use std::panic::AssertUnwindSafe;

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::module::attention;
use burn::tensor::{Bool, Distribution, Int, Tensor, TensorData};
use burn_wgsl::debug::{self, Values, compare_runs};
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::runtime::{Fault, Runtime};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast, scope};

use crate::common::{
    assert_success, devices, gpus, panic_message, run_child, serial_guard, test_alone,
};

type B = Autodiff<Wgsl>;

#[derive(Module, Debug)]
struct Layers<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl<B: Backend> Layers<B> {
    fn new(device: &B::Device) -> Self {
        let layer = || LinearConfig::new(8, 8).init(device);
        Self { layers: (0..4).map(|_| layer()).collect() }
    }

    fn forward(&self, mut x: Tensor<B, 2>) -> Tensor<B, 2> {
        for (index, layer) in self.layers.iter().enumerate() {
            let _scope = scope(format!("layer {index}"));
            x = layer.forward(x).tanh();
        }
        x
    }
}

/// Returns the message of the panic of `work` while results are checked.
fn message_with(values: Values, work: impl FnOnce()) -> String {
    debug::set_values(values);
    let message = panic_message(AssertUnwindSafe(work));
    debug::set_values(Values::Any);
    message
}

fn assert_parts(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "no {part:?} in: {message}");
    }
}

#[test]
fn a_planted_nan_is_found_where_it_is_used_first() {
    let _guard = serial_guard();
    for device in devices() {
        let mut model = Layers::<B>::new(&device);
        let mut weights = vec![0.5f32; 64];
        weights[10] = f32::NAN;
        let weights = Tensor::from_data(TensorData::new(weights, [8, 8]), &device);
        model.layers[3].weight = Param::from_tensor(weights);
        let x = Tensor::<B, 2>::random([5, 8], Distribution::Default, &device);
        let message = message_with(Values::NotNan, || drop(model.forward(x).into_data()));
        let op = "linear in layer 3: the result has 5 NaN";
        assert_parts(&message, &[op, "weight: 1 NaN, 5.000000e-1 to 5.000000e-1 (F32 [8, 8])"]);
        // What is not checked goes on.
        let sum = Tensor::<B, 1>::from_floats([1.0, f32::NAN], &device).sum().into_scalar();
        assert!(sum.is_nan());
    }
}

#[test]
fn the_backward_pass_is_named() {
    let _guard = serial_guard();
    for device in devices() {
        let message = message_with(Values::Finite, || {
            let x = Tensor::<B, 1>::from_floats([4.0, 0.0], &device).require_grad();
            let _ = x.sqrt().sum().backward();
        });
        assert_parts(&message, &[" in backward: the result has 1 infinite"]);
    }
}

/// The gradient of a quotient by zero is infinite. Where a mask replaces the result, it is multiplied by zero.
#[test]
fn gradients_of_masked_quotients_are_named() {
    let _guard = serial_guard();
    for device in devices() {
        let gradient = || {
            let x = Tensor::<B, 1>::from_floats([4.0, 0.0], &device).require_grad();
            let is_zero = x.clone().equal_elem(0.0);
            let y = x.clone().recip().mask_fill(is_zero, 0.0);
            x.grad(&y.sum().backward()).expect("a gradient")
        };
        let found = gradient().into_data().to_vec::<f32>().expect("f32");
        assert_eq!(found[0], -0.0625);
        assert!(found[1].is_nan());
        let message = message_with(Values::NotNan, || drop(gradient()));
        assert_parts(&message, &["float_mul", " in backward: the result has 1 NaN"]);
        // The way out: a divisor that is not zero.
        let x = Tensor::<B, 1>::from_floats([4.0, 0.0], &device).require_grad();
        let is_zero = x.clone().equal_elem(0.0);
        let safe = x.clone().mask_fill(is_zero.clone(), 1.0);
        let y = safe.recip().mask_fill(is_zero, 0.0);
        let found = x.grad(&y.sum().backward()).expect("a gradient");
        assert_eq!(found.into_data().to_vec::<f32>().expect("f32"), [-0.0625, 0.0]);
    }
}

/// Products under autocast: the finder names the op whose result f16 cannot hold.
#[test]
fn overflows_of_autocast_are_named() {
    let _guard = serial_guard();
    for device in devices() {
        let x = Tensor::<Wgsl, 2>::full([4, 4], 300.0, &device);
        let message = message_with(Values::Finite, || {
            let _scope = autocast(&device, Precision::F16);
            drop(x.clone().matmul(x));
        });
        assert_parts(&message, &["float_matmul: the result has 16 infinite", "F16", "3.000000e2"]);
    }
}

/// Queries whose keys are all masked have infinite log sums.
#[test]
fn masked_queries_are_no_error() {
    let _guard = serial_guard();
    for device in devices() {
        let random = |seed| {
            B::seed(&device, seed);
            Tensor::<B, 4>::random([1, 1, 4, 8], Distribution::Default, &device)
        };
        let query = random(1).require_grad();
        let mask = Tensor::<B, 4, Bool>::full([1, 1, 4, 4], true, &device);
        debug::set_values(Values::Finite);
        let out = attention(query, random(2), random(3), Some(mask), None, Default::default());
        let _ = out.sum().backward();
        debug::set_values(Values::Any);
    }
}

#[test]
fn infinities_are_found_only_if_asked_for() {
    let _guard = serial_guard();
    for device in devices() {
        let x = Tensor::<Wgsl, 1>::from_floats([1.0, 0.0], &device);
        debug::set_values(Values::NotNan);
        let data = x.clone().log().into_data();
        assert_eq!(data.to_vec::<f32>().expect("floats"), [0.0, f32::NEG_INFINITY]);
        let message = message_with(Values::Finite, || drop(x.log()));
        let parts = ["float_log: the result has 1 infinite, 0.000000e0 to 0.000000e0 (F32 [2])"];
        assert_parts(&message, &parts);
        assert_parts(&message, &["tensor: 0.000000e0 to 1.000000e0"]);
        // Integers and booleans have no such values.
        debug::set_values(Values::Finite);
        let _ = Tensor::<Wgsl, 1, Int>::arange(0..4, &device).greater_elem(2).into_data();
        debug::set_values(Values::Any);
    }
}

#[test]
fn the_op_that_fails_is_named() {
    let _guard = serial_guard();
    for device in gpus() {
        let ResolvedDevice::Adapter(index) = device.resolve().expect("the device exists") else {
            continue;
        };
        let runtime = Runtime::of(index).expect("the device opens");
        let x = Tensor::<Wgsl, 1>::random([1 << 20], Distribution::Default, &device);
        Wgsl::sync(&device).expect("the device works");
        // Without the mode, the op that reads the result reports the error.
        debug::set_each_op(true);
        let message = {
            let _scope = scope("step");
            runtime.plan_fault(Fault::OutOfMemory, 0);
            panic_message(AssertUnwindSafe(|| drop(x.clone().exp())))
        };
        debug::set_each_op(false);
        assert!(!runtime.cancel_fault(), "nothing failed on {device}");
        assert_parts(&message, &["float_exp failed in step: ", "out of memory"]);
        Wgsl::sync(&device).expect("the device goes on");
    }
}

#[test]
fn runs_are_compared_bit_for_bit() {
    let _guard = serial_guard();
    for device in devices() {
        let step = |seed: u64| {
            Wgsl::seed(&device, seed);
            let model = Layers::<B>::new(&device);
            let x = Tensor::<B, 2>::random([64, 8], Distribution::Default, &device);
            let y = model.forward(x);
            let grads = y.clone().powi_scalar(2).mean().backward();
            let grad = model.layers[0].weight.grad(&grads).expect("it has a gradient");
            vec![y.into_data(), grad.into_data()]
        };
        assert_eq!(compare_runs(|| step(7)), None, "{device}");
        let mut seed = 0;
        let differing = compare_runs(|| {
            seed += 1;
            step(seed)
        });
        let text = differing.expect("other numbers").to_string();
        assert_parts(&text, &["element 0 of tensor 0 is "]);
    }
    let mut length = 0;
    let difference = compare_runs(|| {
        length += 1;
        vec![TensorData::new(vec![0.0f32; length], [length])]
    });
    let text = difference.expect("other shapes").to_string();
    assert_eq!(text, "tensor 0 has another shape or type in the second run");
}

#[test]
#[ignore = "a child of the test below"]
fn has_a_nan() {
    let _ = Tensor::<Wgsl, 1>::from_floats([-1.0], &WgslDevice::Cpu).log();
}

#[test]
fn modes_are_set_by_a_variable() {
    assert_success(&run_child(test_alone!("has_a_nan"), &[]));
    for modes in ["nan", "ops, finite"] {
        let output = run_child(test_alone!("has_a_nan"), &[("BURN_WGSL_DEBUG", modes)]);
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{text}");
        assert_parts(&text, &["float_log: the result has 1 NaN"]);
    }
    let output = run_child(test_alone!("has_a_nan"), &[("BURN_WGSL_DEBUG", "nans")]);
    assert_success(&output);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_parts(
        &text,
        &[r#"BURN_WGSL_DEBUG="nans" is ignored: use ops, nan, finite, waits, lines and groups"#],
    );
}

#[test]
fn waits_are_named_with_the_line_that_waits() {
    let _guard = serial_guard();
    for device in gpus() {
        let output = run_child(
            test_alone!("waits"),
            &[("BURN_WGSL_DEBUG", "waits"), ("BURN_WGSL_DEVICE", &device.to_string())],
        );
        assert_success(&output);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let [readback, sync] = ["for a readback", "for the end of all work"].map(|wait| {
            let found = text.lines().position(|line| line.contains(wait));
            found.unwrap_or_else(|| panic!("no wait {wait}: {text}"))
        });
        let place = |at: usize| text.lines().skip(at).take(3).collect::<String>();
        assert!(place(readback).contains("scope loss"), "{text}");
        assert!(place(readback).contains("tests/device/debug.rs"), "{text}");
        assert!(place(sync).contains("tests/device/debug.rs"), "{text}");
    }
}

#[test]
#[ignore = "a child of the test above"]
fn waits() {
    env_logger::Builder::new().filter_level("warn".parse().expect("warn is a log level")).init();
    let device = WgslDevice::Auto;
    let x = Tensor::<Wgsl, 2>::ones([256, 256], &device);
    {
        let _scope = scope("loss");
        assert_eq!(x.clone().matmul(x.clone()).max().into_scalar(), 256.0);
    }
    let y = x.clone().matmul(x);
    burn_wgsl::compute(&device).expect("the device works");
    Wgsl::sync(&device).expect("the device works");
    drop(y);
}
