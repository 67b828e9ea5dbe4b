//! Gradients of every case on every device, with and without checkpointing, with Burn's automatic
//! differentiation and with this crate's, against burn-flex's gradients and finite differences.

use burn::backend::Autodiff as BurnAutodiff;
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
use burn_wgsl::kernels::ops::cases::{Arg, Case};
use burn_wgsl::kernels::ops::options::{InterpolateMode, ScatterOp};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast};

use crate::common::{self, Tolerance, assert_close, devices, failure};

/// Returns whether a case has a gradient to test. Excludes backward ops and ops whose gradient is
/// missing or wrong in Burn 0.21's autodiff or in burn-flex.
fn has_gradient(case: &Case) -> bool {
    let takes_floats = case.op.starts_with("float_")
        || !case.op.contains('_')
        || ["pool", "conv", "soft", "norm"].iter().any(|part| case.op.contains(part))
        || case.op == "ctc_loss";
    let is_backward = case.op.contains("backward");
    // burn-flex has no such method to compare with.
    let is_extension = case.op == "rms_norm";
    let no_gradient =
        ["arg", "any", "all", "into_int", "unfold"].iter().any(|part| case.op.contains(part));
    // Burn 0.21's gradient of repeat_dim is wrong for long axes with every backend.
    let is_wrong = case.op == "float_repeat_dim";
    // There is no gradient of grid_sample in the bicubic mode. burn-flex has no gradient of the
    // Lanczos filter.
    let unsupported = case.args.iter().any(|arg| match *arg {
        Arg::GridSample(mode, ..) => mode == InterpolateMode::Bicubic,
        Arg::Interpolate(mode, _) => mode == InterpolateMode::Lanczos3,
        _ => false,
    });
    let is_integer = case.op.starts_with("int_") || case.op.starts_with("bool_");
    takes_floats
        && !is_backward
        && !is_extension
        && !no_gradient
        && !is_wrong
        && !unsupported
        && !is_integer
}

/// Returns whether Burn 0.21's autodiff has the gradient of a case. It composes products from
/// logarithms, so their gradients are NaN for negative elements.
fn has_gradient_in_burn(case: &Case) -> bool {
    let is_nearest = |arg: &Arg| matches!(arg, Arg::GridSample(InterpolateMode::Nearest, ..));
    has_gradient(case)
        && !["prod", "topk", "rfft"].iter().any(|part| case.op.contains(part))
        && !case.args.iter().any(is_nearest)
}

/// Returns whether Burn 0.21 computes a wrong gradient with every backend.
///
/// For a broadcast cross product it does not sum over the expanded axis. For scatter_nd the
/// gradient is wrong if an update other than add writes a location twice.
fn is_wrong_in_burn(case: &Case) -> bool {
    let overwrites =
        matches!(case.args.last(), Some(Arg::Scatter(update)) if *update != ScatterOp::Add);
    let shapes: Vec<&[usize]> = case
        .args
        .iter()
        .filter_map(|arg| match arg {
            Arg::Tensor(input) => Some(input.shape),
            _ => None,
        })
        .collect();
    case.op == "float_scatter_nd" && overwrites
        || case.op == "float_cross" && shapes[0] != shapes[1]
}

/// Returns the weight of result element `i` in the loss. Unequal weights reveal gradients that are
/// right only on average.
fn weight(i: usize) -> f64 {
    0.5 + (i % 7) as f64 * 0.25
}

/// Returns the gradients of all float inputs, with a weighted sum of the float results as the loss.
fn gradients<T: AutodiffBackend>(case: &Case, device: &T::Device) -> Vec<Option<TensorData>> {
    gradients_as::<T>(case, device, Types::of::<T>(device))
}

/// Does the same as [`gradients`], in the given element types.
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
    let mut loss: Option<Tensor<T, 1>> = None;
    for value in values.unwrap_or_default() {
        let Value::Float(tensor) = value else {
            continue;
        };
        let count = burn_backend::TensorMetadata::shape(&tensor).num_elements();
        if count == 0 {
            return Vec::new();
        }
        let weights: Vec<f32> = (0..count).map(|i| weight(i) as f32).collect();
        let tensor = T::float_reshape(tensor, burn::tensor::Shape::from(vec![count]));
        let tensor = Tensor::<T, 1>::from_primitive(TensorPrimitive::Float(tensor));
        let weights = Tensor::<T, 1>::from_floats(weights.as_slice(), device).cast(types.float);
        // Sum in f32: the sum is not under test.
        let sum = (tensor * weights).cast(FloatDType::F32).sum();
        loss = Some(match loss {
            Some(loss) => loss + sum,
            None => sum,
        });
    }
    let Some(loss) = loss else {
        return Vec::new();
    };
    let grads = loss.backward();
    let read = |leaf: &T::FloatTensorPrimitive| {
        let grad = T::grad(leaf, &grads)?;
        Some(pollster::block_on(T::InnerBackend::float_into_data(grad)).expect("readback succeeds"))
    };
    leaves.iter().map(read).collect()
}

/// Compares a case's gradients with burn-flex's and returns whether there are any.
fn compare<T, S>(case: &Case, device: &WgslDevice) -> bool
where
    T: AutodiffBackend<Device = WgslDevice>,
    S: CheckpointStrategy,
{
    let expected = gradients::<BurnAutodiff<Flex, S>>(case, &FlexDevice);
    let values = gradients::<T>(case, device);
    let label = format!("the gradient of {case:?} on {device}");
    assert_eq!(values.len(), expected.len(), "{label}: the number of float inputs");
    for (value, expected) in values.iter().zip(&expected) {
        let (Some(value), Some(expected)) = (value, expected) else {
            assert_eq!(value.is_some(), expected.is_some(), "{label}: a gradient is missing");
            continue;
        };
        assert_close(&label, value, expected, Tolerance { relative: 3e-4, absolute: 3e-4 });
    }
    expected.iter().any(Option::is_some)
}

/// Compares the gradients of every case on every device and reports all failures.
fn check_every_case<T, S>()
where
    T: AutodiffBackend<Device = WgslDevice>,
    S: CheckpointStrategy + std::panic::RefUnwindSafe,
{
    let mut failed = Vec::new();
    let mut checked = 0;
    for device in devices() {
        for case in common::cases().filter(|case| has_gradient_in_burn(case)) {
            match std::panic::catch_unwind(|| compare::<T, S>(case, &device)) {
                Ok(has_gradients) => checked += usize::from(has_gradients),
                Err(panic) => failed.push(failure(&format!("{case:?} on {device}"), panic)),
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
fn burns_gradients_match_burn_flex() {
    check_every_case::<BurnAutodiff<Wgsl>, NoCheckpointing>();
}

#[test]
fn checkpointed_gradients_match_burn_flex() {
    check_every_case::<Autodiff<Wgsl, BalancedCheckpointing>, BalancedCheckpointing>();
}

/// The gradient in f16 is the rounded f32 gradient of the same f16 numbers.
#[test]
fn f16_gradients_match_f32_gradients() {
    let half = Types { float: FloatDType::F16, ..ROUNDED };
    compare_with_f32(DType::F16, |case, device| gradients_as::<Autodiff<Wgsl>>(case, device, half));
}

/// Under autocast, gradients of f32 tensors are f32, and those of the same f16 numbers up to rounding.
#[test]
fn autocast_gradients_match_f32_gradients() {
    compare_with_f32(DType::F32, |case, device| {
        let _scope = autocast(device, Precision::F16);
        gradients_as::<Autodiff<Wgsl>>(case, device, ROUNDED)
    });
}

/// Numbers of f16 in tensors of f32.
const ROUNDED: Types =
    Types { float: FloatDType::F32, rounded: FloatDType::F16, int: IntDType::I32 };

/// Compares gradients, which must have the type `dtype`, with those that burn-flex computes in f32.
fn compare_with_f32(
    dtype: DType,
    gradients: impl Fn(&Case, &WgslDevice) -> Vec<Option<TensorData>> + std::panic::RefUnwindSafe,
) {
    let (mut failed, mut checked) = (Vec::new(), 0);
    for device in common::gpus() {
        // Rounding creates ties in sorted values. Burn composes the gradient of grid_sample from
        // coordinates rounded to 16 bits. The gradient of a long log-softmax exponentiates results
        // below -8, whose rounding by up to 2^-8 is most of the tolerance.
        let depends_on_rounding = |case: &Case| {
            let has_long_lines = |arg: &Arg| match arg {
                Arg::Tensor(input) => input.shape.iter().any(|&len| len > 8192),
                _ => false,
            };
            case.op.contains("sort")
                || case.op.contains("grid_sample")
                || case.op == "log_softmax" && case.args.iter().any(has_long_lines)
        };
        for case in
            common::cases().filter(|case| has_gradient_in_burn(case) && !depends_on_rounding(case))
        {
            let expected = || gradients_as::<BurnAutodiff<Flex>>(case, &FlexDevice, ROUNDED);
            let Ok(expected) = std::panic::catch_unwind(expected) else {
                continue;
            };
            let Ok(values) = std::panic::catch_unwind(|| gradients(case, &device)) else {
                failed.push(format!("{case:?} on {device} panics"));
                continue;
            };
            for (value, expected) in values.into_iter().zip(expected) {
                let (Some(value), Some(expected)) = (value, expected) else {
                    continue;
                };
                checked += 1;
                let label = format!("{case:?} on {device}");
                let expected = expected.convert_dtype(dtype);
                let check = || assert_close(&label, &value, &expected, common::CHAINED_F16);
                if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
                    failed.push(failure(&label, panic));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{} of {checked} failed:\n{}", failed.len(), failed.join("\n"));
}

/// Computes the float results of a case with burn-flex in f64. `step` is added to one element of
/// input `leaf`.
fn results_in_f64(case: &Case, leaf: usize, element: usize, step: f64) -> Option<Vec<Vec<f64>>> {
    let types = Types { float: FloatDType::F64, rounded: FloatDType::F32, int: IntDType::I64 };
    let mut leaves = 0;
    let values = call_as::<Flex>(case, &FlexDevice, types, &mut |tensor| {
        leaves += 1;
        if leaves != leaf + 1 {
            return tensor;
        }
        let data = tensor.into_data();
        let mut values: Vec<f64> = data.iter::<f64>().collect();
        values[element] += step;
        burn_flex::FlexTensor::from_data(TensorData::new(values, data.shape))
    })?;
    let floats = values.into_iter().filter_map(|value| match value {
        Value::Float(tensor) => Some(tensor.into_data().iter::<f64>().collect()),
        _ => None,
    });
    Some(floats.collect())
}

/// Computes a derivative of the loss, the weighted sum of the results. The differences are summed,
/// not the results: a large sum would round them away.
fn central_difference(above: &[Vec<f64>], below: &[Vec<f64>], step: f64) -> f64 {
    let difference = |(above, below): (&Vec<f64>, &Vec<f64>)| -> f64 {
        let pairs = above.iter().zip(below).enumerate();
        pairs.map(|(i, (above, below))| weight(i) * (above - below)).sum()
    };
    above.iter().zip(below).map(difference).sum::<f64>() / (2.0 * step)
}

/// Central differences in f64 reveal errors that burn-flex's gradients share.
#[test]
fn gradients_match_finite_differences() {
    // burn-flex computes Fourier transforms in f32. They are linear, so that any step is exact.
    let step_of = |case: &Case| if case.op.contains("fft") { 0.5 } else { 1e-5 };
    let (mut failed, mut checked) = (Vec::new(), 0);
    for device in devices() {
        for case in common::cases().filter(|case| has_gradient(case) && !is_wrong_in_burn(case)) {
            let grads = gradients::<Autodiff<Wgsl>>(case, &device);
            let step = step_of(case);
            for (leaf, grad) in grads.iter().enumerate() {
                let Some(grad) = grad else { continue };
                let grad: Vec<f64> = grad.iter::<f64>().collect();
                // Check a few elements, except those that `Fill::Normal` sets to zero: some ops are
                // not differentiable there.
                let eligible = |&i: &usize| i < grad.len() && (i < 5 || (i - 5) % 17 != 0);
                for element in [1, 7, grad.len() / 2, grad.len().saturating_sub(1)]
                    .into_iter()
                    .filter(eligible)
                {
                    let results = |step| {
                        let run = || results_in_f64(case, leaf, element, step);
                        std::panic::catch_unwind(run).ok().flatten()
                    };
                    // burn-flex may lack the op in f64.
                    let (Some(above), Some(below)) = (results(step), results(-step)) else {
                        continue;
                    };
                    let expected = central_difference(&above, &below, step);
                    if !expected.is_finite() {
                        continue;
                    }
                    checked += 1;
                    if !common::FINITE_DIFFERENCE.holds(grad[element], expected) {
                        failed.push(format!(
                            "{case:?} on {device}, input {leaf}: element {element} is {}, \
                             expected {expected}",
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
        "only {checked} elements were checked"
    );
}

/// Finite differences of the exact gelu reveal errors that burn-flex's gradient shares.
#[test]
fn gelu_gradient_is_that_of_the_exact_form() {
    for device in devices() {
        let xs = [-3.0f32, -1.0, -0.1, 0.0, 0.2, 1.0, 2.5];
        let x = Tensor::<Autodiff<Wgsl>, 1>::from_floats(xs, &device).require_grad();
        let grads = burn::tensor::activation::gelu(x.clone()).sum().backward();
        let grad = x.grad(&grads).expect("x has a gradient").into_data();
        for (x, grad) in xs.iter().zip(grad.iter::<f64>()) {
            let (x, h) = (f64::from(*x), 1e-5);
            let gelu = burn_wgsl::kernels::ops::table::reference::gelu;
            let expected = (gelu(x + h) - gelu(x - h)) / (2.0 * h);
            assert!(
                Tolerance { relative: 0.0, absolute: 2e-5 }.holds(grad, expected),
                "gelu'({x}) on {device} is {grad}, expected {expected}"
            );
        }
    }
}
