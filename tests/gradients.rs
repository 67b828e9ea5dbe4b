//! Gradients of every case, on every device, against those of the CPU twin; with and without checkpointing.

mod common;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::{
    BalancedCheckpointing, CheckpointStrategy, NoCheckpointing,
};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData, TensorPrimitive};
use burn_backend::DType;
use burn_backend::ops::FloatTensorOps;
use burn_flex::{Flex, FlexDevice};
use burn_std::{FloatDType, IntDType};
use burn_wgsl::backend::call::{Types, Value, call_as};
use burn_wgsl::kernels::cases::{Arg, Case};
use burn_wgsl::kernels::index_nd::Update;
use burn_wgsl::kernels::interpolate::Mode;
use burn_wgsl::{Wgsl, WgslDevice};
use common::{Tolerance, assert_close, devices};

/// Ops that only exist inside of a gradient, and those that Burn 0.21's autodiff has no gradient for.
fn has_gradient(case: &Case) -> bool {
    let floats = case.op.starts_with("float_")
        || !case.op.contains('_')
        || case.op.contains("pool")
        || case.op.contains("conv")
        || case.op.contains("soft")
        || case.op == "ctc_loss";
    let inner = case.op.contains("backward");
    // burn-flex has no argtopk, which the gradient of topk needs.
    let flat = ["arg", "any", "all", "into_int", "unfold", "topk", "rfft"]
        .iter()
        .any(|word| case.op.contains(word));
    // A known bug of Burn 0.21, whatever the backend: its gradient of repeat_dim is wrong for long axes.
    let wrong = case.op == "float_repeat_dim" || case.op.contains("prod");
    // Burn's autodiff samples on a grid by the plane only, and burn-flex has no gradient of the Lanczos filter.
    let unknown = case.args.iter().any(|arg| match *arg {
        Arg::GridSample(mode, ..) => mode != Mode::Bilinear,
        Arg::Interpolate(mode, _) => mode == Mode::Lanczos3,
        _ => false,
    });
    let integer = case.op.starts_with("int_") || case.op.starts_with("bool_");
    floats && !inner && !flat && !wrong && !unknown && !integer
}

/// Gradients that Burn 0.21 itself gets wrong, whatever the backend: of a cross product that broadcasts (it does not sum
/// over the axis that was spread), and of writes other than sums where a place is written twice.
fn is_wrong_in_burn(case: &Case) -> bool {
    let twice = matches!(case.args.last(), Some(Arg::Update(update)) if *update != Update::Add);
    let shapes: Vec<&[usize]> = case
        .args
        .iter()
        .filter_map(|arg| match arg {
            Arg::Tensor(input) => Some(input.shape),
            _ => None,
        })
        .collect();
    case.op == "float_scatter_nd" && twice || case.op == "float_cross" && shapes[0] != shapes[1]
}

/// What element `i` of a result counts in the sum whose gradients are taken.
fn weight(i: usize) -> f64 {
    0.5 + (i % 7) as f64 * 0.25
}

/// The gradients of all float inputs, for a weighted sum of the float results.
fn gradients<T: AutodiffBackend>(case: &Case, device: &T::Device) -> Vec<Option<TensorData>> {
    gradients_as::<T>(case, device, Types::of::<T>(device))
}

/// The same, computed in these element types.
fn gradients_as<T: AutodiffBackend>(
    case: &Case,
    device: &T::Device,
    types: Types,
) -> Vec<Option<TensorData>> {
    let mut leaves: Vec<T::FloatTensorPrimitive> = Vec::new();
    let values = call_as::<T>(case, device, types, &mut |tensor| {
        let leaf = T::float_set_require_grad(T::float_detach(tensor), true);
        leaves.push(leaf.clone());
        leaf
    });
    let mut total: Option<Tensor<T, 1>> = None;
    for value in values.unwrap_or_default() {
        let Value::Float(tensor) = value else {
            continue;
        };
        let count = burn_backend::TensorMetadata::shape(&tensor).num_elements();
        if count == 0 {
            return Vec::new();
        }
        // Weights that differ from element to element: a gradient that is only right on average shows.
        let weights: Vec<f32> = (0..count).map(|i| weight(i) as f32).collect();
        let tensor = T::float_reshape(tensor, burn::tensor::Shape::from(vec![count]));
        let tensor = Tensor::<T, 1>::from_primitive(TensorPrimitive::Float(tensor));
        let weights = Tensor::<T, 1>::from_floats(weights.as_slice(), device).cast(types.float);
        // Summed in f32: the sum itself is no part of what is checked.
        let sum = (tensor * weights).cast(FloatDType::F32).sum();
        total = Some(match total {
            Some(total) => total + sum,
            None => sum,
        });
    }
    let Some(total) = total else {
        return Vec::new();
    };
    let grads = total.backward();
    let read = |leaf: &T::FloatTensorPrimitive| {
        let grad = T::grad(leaf, &grads)?;
        Some(pollster::block_on(T::InnerBackend::float_into_data(grad)).expect("it is read back"))
    };
    leaves.iter().map(read).collect()
}

fn compare<S: CheckpointStrategy>(case: &Case, device: &WgslDevice) -> bool {
    let truth = gradients::<Autodiff<Flex, S>>(case, &FlexDevice);
    let value = gradients::<Autodiff<Wgsl, S>>(case, device);
    let what = format!("the gradient of {case:?} on {device}");
    assert_eq!(value.len(), truth.len(), "{what}: the count of inputs with one");
    for (value, truth) in value.iter().zip(&truth) {
        let (Some(value), Some(truth)) = (value, truth) else {
            assert_eq!(value.is_some(), truth.is_some(), "{what}: which inputs have one");
            continue;
        };
        assert_close(&what, value, truth, Tolerance { relative: 3e-4, absolute: 3e-4 });
    }
    truth.iter().any(Option::is_some)
}

fn every_case<S: CheckpointStrategy + std::panic::RefUnwindSafe>() {
    let mut failed = Vec::new();
    let mut checked = 0;
    for device in devices() {
        for case in common::cases().filter(|case| has_gradient(case)) {
            match std::panic::catch_unwind(|| compare::<S>(case, &device)) {
                Ok(had) => checked += usize::from(had),
                Err(panic) => failed.push(
                    panic
                        .downcast_ref::<String>()
                        .cloned()
                        .unwrap_or_else(|| format!("{case:?} on {device}")),
                ),
            }
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    assert!(
        checked > 60 || std::env::var_os("BURN_WGSL_TEST_CASES").is_some(),
        "only {checked} gradients were checked"
    );
}

#[test]
fn gradients_agree_with_the_twin() {
    every_case::<NoCheckpointing>();
}

#[test]
fn checkpointed_gradients_agree_with_the_twin() {
    every_case::<BalancedCheckpointing>();
}

/// In f16 too, a gradient is that of the same numbers in f32, rounded.
#[test]
fn gradients_in_f16_are_those_of_f32() {
    let (mut failed, mut checked) = (Vec::new(), 0);
    let half = Types { float: FloatDType::F16, rounded: FloatDType::F16, int: IntDType::I32 };
    let single = Types { float: FloatDType::F32, ..half };
    for device in common::gpus() {
        // Rounding makes ties to sort, and Burn composes the gradient of sampling of places rounded to 16 bits.
        let rounded = |case: &Case| case.op.contains("sort") || case.op.contains("grid_sample");
        for case in common::cases().filter(|case| has_gradient(case) && !rounded(case)) {
            let truth = || gradients_as::<Autodiff<Flex>>(case, &FlexDevice, single);
            let Ok(truth) = std::panic::catch_unwind(truth) else {
                continue;
            };
            let value =
                std::panic::catch_unwind(|| gradients_as::<Autodiff<Wgsl>>(case, &device, half));
            let Ok(value) = value else {
                failed.push(format!("{case:?} on {device} panics"));
                continue;
            };
            for (value, truth) in value.into_iter().zip(truth) {
                let (Some(value), Some(truth)) = (value, truth) else {
                    continue;
                };
                checked += 1;
                let what = format!("{case:?} on {device}");
                let truth = truth.convert_dtype(DType::F16);
                let check = || assert_close(&what, &value, &truth, common::CHAINED_F16);
                if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
                    failed.push(panic.downcast_ref::<String>().cloned().unwrap_or(what));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{} of {checked} failed:\n{}", failed.len(), failed.join("\n"));
}

/// The weighted sum of a case's float results, computed by the twin in f64, with `step` added to one element of
/// one of its inputs.
fn loss_in_f64(case: &Case, leaf: usize, element: usize, step: f64) -> Option<f64> {
    let types = Types { float: FloatDType::F64, rounded: FloatDType::F32, int: IntDType::I64 };
    let mut seen = 0;
    let values = call_as::<Flex>(case, &FlexDevice, types, &mut |tensor| {
        seen += 1;
        if seen != leaf + 1 {
            return tensor;
        }
        let data = tensor.into_data();
        let mut values: Vec<f64> = data.iter::<f64>().collect();
        values[element] += step;
        burn_flex::FlexTensor::from_data(TensorData::new(values, data.shape))
    })?;
    let mut total = 0.0;
    for value in values {
        let Value::Float(tensor) = value else {
            continue;
        };
        let weighted =
            tensor.into_data().iter::<f64>().enumerate().map(|(i, x)| x * weight(i)).sum::<f64>();
        total += weighted;
    }
    Some(total)
}

/// Against central differences in f64, so that a mistake shared with the twin's own gradients would show.
#[test]
fn gradients_agree_with_finite_differences() {
    const STEP: f64 = 1e-5;
    let (mut failed, mut checked) = (Vec::new(), 0);
    for device in devices() {
        for case in common::cases().filter(|case| has_gradient(case) && !is_wrong_in_burn(case)) {
            let grads = gradients::<Autodiff<Wgsl>>(case, &device);
            for (leaf, grad) in grads.iter().enumerate() {
                let Some(grad) = grad else { continue };
                let grad: Vec<f64> = grad.iter::<f64>().collect();
                // A few elements, none of those that a case sets to zero, where some ops have a corner.
                let smooth = |&i: &usize| i < grad.len() && (i < 5 || (i - 5) % 17 != 0);
                for element in
                    [1, 7, grad.len() / 2, grad.len().saturating_sub(1)].into_iter().filter(smooth)
                {
                    let loss = |step| {
                        let run = || loss_in_f64(case, leaf, element, step);
                        std::panic::catch_unwind(run).ok().flatten()
                    };
                    // The twin may not know the op in f64.
                    let (Some(up), Some(down)) = (loss(STEP), loss(-STEP)) else {
                        continue;
                    };
                    let truth = (up - down) / (2.0 * STEP);
                    if !truth.is_finite() {
                        continue;
                    }
                    checked += 1;
                    if !common::DIFFERENCE.holds(grad[element], truth) {
                        failed.push(format!(
                            "{case:?} on {device}, input {leaf}: element {element} is {}, the truth {truth}",
                            grad[element]
                        ));
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "{} of {checked} failed:\n{}", failed.len(), failed.join("\n"));
    assert!(
        checked > 300 || std::env::var_os("BURN_WGSL_TEST_CASES").is_some(),
        "only {checked} were checked"
    );
}

/// Against finite differences of the truth itself, so that a mistake shared with the twin would show.
#[test]
fn gelu_gradient_is_that_of_the_exact_form() {
    for device in devices() {
        let xs = [-3.0f32, -1.0, -0.1, 0.0, 0.2, 1.0, 2.5];
        let x = Tensor::<Autodiff<Wgsl>, 1>::from_floats(xs, &device).require_grad();
        let grads = burn::tensor::activation::gelu(x.clone()).sum().backward();
        let grad = x.grad(&grads).expect("x is tracked").into_data();
        for (x, grad) in xs.iter().zip(grad.iter::<f64>()) {
            let (x, h) = (f64::from(*x), 1e-5);
            let gelu = burn_wgsl::kernels::table::gelu;
            let truth = (gelu(x + h) - gelu(x - h)) / (2.0 * h);
            assert!(
                (grad - truth).abs() < 2e-5,
                "gelu'({x}) on {device} is {grad}, the truth {truth}"
            );
        }
    }
}
