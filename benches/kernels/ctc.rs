//! The connectionist temporal classification (CTC) loss and its gradient, in a size typical of
//! speech recognition.

use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::module::ctc_loss;
use burn::tensor::{Int, Tensor};
use burn_wgsl::kernels::ctc::CASES;
use burn_wgsl::{Wgsl, WgslDevice};
use criterion::Criterion;

use crate::measure::{AutodiffWgsl, measure, measure_cases, random, random_indices};

const STEPS: usize = 200;
const BATCH: usize = 16;
const CLASSES: usize = 64;
const LABELS: usize = 40;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "ctc", CASES);
    let elements = STEPS * BATCH * CLASSES;
    measure(criterion, "ctc/200x16x64-40", elements, |device| {
        let log_probs = log_probs(device);
        let targets = labels(device);
        move || loss(log_probs.clone(), targets.clone())
    });
    measure(criterion, "ctc/gradient/200x16x64-40", elements, |device| {
        let log_probs = Tensor::<AutodiffWgsl, 3>::from_inner(log_probs(device)).require_grad();
        let targets = Tensor::from_inner(labels(device));
        move || loss(log_probs.clone(), targets.clone()).sum().backward()
    });
}

/// Returns log probabilities, `[steps, batch, classes]`.
fn log_probs(device: &WgslDevice) -> Tensor<Wgsl, 3> {
    log_softmax(random([STEPS, BATCH, CLASSES], device), 2)
}

/// Returns random labels, `[batch, labels]`, without the blank class 0.
fn labels(device: &WgslDevice) -> Tensor<Wgsl, 2, Int> {
    random_indices(CLASSES - 1, [BATCH, LABELS], device) + 1
}

/// Computes the loss of each sequence, `[batch]`; all sequences have full length.
fn loss<B: Backend>(log_probs: Tensor<B, 3>, targets: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    let device = log_probs.device();
    let [steps, labels] = [STEPS, LABELS].map(|len| Tensor::full([BATCH], len as i64, &device));
    ctc_loss(log_probs, targets, steps, labels, 0)
}
