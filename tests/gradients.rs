//! Gradients of every case, on every device, against those of the CPU twin; with and without checkpointing.

mod common;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::{
    BalancedCheckpointing, CheckpointStrategy, NoCheckpointing,
};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData, TensorPrimitive};
use burn_backend::ops::FloatTensorOps;
use burn_flex::{Flex, FlexDevice};
use burn_wgsl::backend::call::{Value, call};
use burn_wgsl::kernels::cases::Case;
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
    let flat = ["arg", "any", "all", "into_int", "unfold", "rfft"]
        .iter()
        .any(|word| case.op.contains(word));
    // A known bug of Burn 0.21, whatever the backend: its gradient of repeat_dim is wrong for long axes.
    let wrong = case.op == "float_repeat_dim" || case.op.contains("prod");
    let integer = case.op.starts_with("int_") || case.op.starts_with("bool_");
    floats && !inner && !flat && !wrong && !integer
}

/// The gradients of all float inputs, for a weighted sum of the float results.
fn gradients<T: AutodiffBackend>(case: &Case, device: &T::Device) -> Vec<TensorData> {
    let mut leaves: Vec<T::FloatTensorPrimitive> = Vec::new();
    let values = call::<T>(case, device, &mut |tensor| {
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
        let weights: Vec<f32> = (0..count).map(|i| 0.5 + (i % 7) as f32 * 0.25).collect();
        let tensor = T::float_reshape(tensor, burn::tensor::Shape::from(vec![count]));
        let tensor = Tensor::<T, 1>::from_primitive(TensorPrimitive::Float(tensor));
        let sum = (tensor * Tensor::from_floats(weights.as_slice(), device)).sum();
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
    leaves.iter().filter_map(read).collect()
}

fn compare<S: CheckpointStrategy>(case: &Case, device: &WgslDevice) -> bool {
    let truth = gradients::<Autodiff<Flex, S>>(case, &FlexDevice);
    let value = gradients::<Autodiff<Wgsl, S>>(case, device);
    let what = format!("the gradient of {case:?} on {device}");
    assert_eq!(
        value.len(),
        truth.len(),
        "{what}: the count of inputs with one"
    );
    for (value, truth) in value.iter().zip(&truth) {
        assert_close(
            &what,
            value,
            truth,
            Tolerance {
                relative: 3e-4,
                absolute: 3e-4,
            },
        );
    }
    !truth.is_empty()
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
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
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
