//! The connectionist temporal classification (CTC) loss against its definition: a sum over all
//! alignments of a target.

use burn::backend::Autodiff;
use burn::tensor::module::ctc_loss;
use burn::tensor::{Int, Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{devices, gpus, without_fallbacks};

type Ad = Autodiff<Wgsl>;

const CLASSES: usize = 3;

/// One input, log probabilities `[steps][CLASSES]`, and its target labels. The blank is class 0.
struct Example {
    log_probs: Vec<[f64; CLASSES]>,
    target: Vec<usize>,
}

impl Example {
    fn new(steps: usize, target: &[usize]) -> Self {
        let row = |t: usize| {
            let logits = [0, 1, 2].map(|c| ((t * CLASSES + c) as f64 * 1.7).sin() * 2.0);
            let sum: f64 = logits.iter().map(|x| x.exp()).sum();
            logits.map(|x| x - sum.ln())
        };
        Self { log_probs: (0..steps).map(row).collect(), target: target.to_vec() }
    }

    /// Returns the negative logarithm of the total probability of all alignments of the target.
    fn loss(&self) -> f64 {
        let steps = self.log_probs.len();
        let mut sum = 0.0;
        for number in 0..CLASSES.pow(steps as u32) {
            let alignment: Vec<usize> =
                (0..steps).map(|t| number / CLASSES.pow(t as u32) % CLASSES).collect();
            let mut labels = alignment.clone();
            labels.dedup();
            labels.retain(|&class| class != 0);
            if labels == self.target {
                sum += alignment
                    .iter()
                    .zip(&self.log_probs)
                    .map(|(&c, row)| row[c])
                    .sum::<f64>()
                    .exp();
            }
        }
        -sum.ln()
    }

    /// Returns the gradient `[steps * CLASSES]` of the loss, by central differences.
    fn gradient(&mut self) -> Vec<f64> {
        let h = 1e-5;
        let mut out = Vec::new();
        for t in 0..self.log_probs.len() {
            for c in 0..CLASSES {
                let x = self.log_probs[t][c];
                self.log_probs[t][c] = x + h;
                let loss_above = self.loss();
                self.log_probs[t][c] = x - h;
                out.push((loss_above - self.loss()) / (2.0 * h));
                self.log_probs[t][c] = x;
            }
        }
        out
    }
}

/// Returns the losses `[batch]` and the gradient `[steps, batch, classes]` of their sum, in which
/// example `n` has the weight `n + 1`.
fn losses_and_gradient(examples: &[Example], device: &WgslDevice) -> (Vec<f64>, Vec<f64>) {
    let batch = examples.len();
    let steps = examples.iter().map(|e| e.log_probs.len()).max().unwrap_or(0);
    let labels = examples.iter().map(|e| e.target.len()).max().unwrap_or(0);
    // Padding past the end of an example must not affect the result.
    let row = |t: usize, n: usize| examples[n].log_probs.get(t).copied().unwrap_or([-9.0; CLASSES]);
    let log_probs: Vec<f64> = (0..steps * batch).flat_map(|i| row(i / batch, i % batch)).collect();
    let label = |n: usize, i: usize| examples[n].target.get(i).map_or(1, |&label| label as i32);
    let targets: Vec<i32> = (0..batch * labels).map(|i| label(i / labels, i % labels)).collect();
    let ints = |values: Vec<usize>| {
        let values: Vec<i32> = values.into_iter().map(|x| x as i32).collect();
        Tensor::<Ad, 1, Int>::from_data(TensorData::new(values, [batch]), device)
    };
    let leaf = TensorData::new(log_probs, [steps, batch, CLASSES]);
    let leaf = Tensor::<Ad, 3>::from_data(leaf, device).require_grad();
    let losses = ctc_loss(
        leaf.clone(),
        Tensor::<Ad, 2, Int>::from_data(TensorData::new(targets, [batch, labels]), device),
        ints(examples.iter().map(|e| e.log_probs.len()).collect()),
        ints(examples.iter().map(|e| e.target.len()).collect()),
        0,
    );
    let weights: Vec<f64> = (1..=batch).map(|n| n as f64).collect();
    let weights = Tensor::<Ad, 1>::from_data(TensorData::new(weights, [batch]), device);
    let grads = (losses.clone() * weights).sum().backward();
    let grad = leaf.grad(&grads).expect("the leaf has a gradient").into_data();
    (losses.into_data().iter().collect(), grad.iter().collect())
}

/// Returns the gradient of example `n`, without its weight.
fn gradient_of(grads: &[f64], n: usize, batch: usize, steps: usize) -> Vec<f64> {
    let element = |t: usize, c: usize| grads[(t * batch + n) * CLASSES + c] / (n + 1) as f64;
    (0..steps * CLASSES).map(|i| element(i / CLASSES, i % CLASSES)).collect()
}

#[test]
fn losses_and_gradients_match_the_definition() {
    let mut examples = [
        Example::new(5, &[1, 2]),
        Example::new(6, &[1, 1, 2]),
        Example::new(4, &[2, 2]),
        // Just long enough for the blank between the two equal labels.
        Example::new(3, &[1, 1]),
        Example::new(6, &[]),
        Example::new(1, &[2]),
        Example::new(5, &[2, 1, 2, 1, 2]),
    ];
    let references: Vec<_> = examples.iter_mut().map(|e| (e.loss(), e.gradient())).collect();
    for device in devices() {
        let (losses, grads) =
            without_fallbacks(&device.to_string(), || losses_and_gradient(&examples, &device));
        for (n, (loss, gradient)) in references.iter().enumerate() {
            assert!(
                (losses[n] - loss).abs() < 1e-5,
                "example {n} on {device}: the loss is {}, expected {loss}",
                losses[n]
            );
            let steps = examples[n].log_probs.len();
            let values = gradient_of(&grads, n, examples.len(), 6);
            for (i, value) in values.iter().enumerate() {
                let expected = if i < steps * CLASSES { gradient[i] } else { 0.0 };
                assert!(
                    (value - expected).abs() < 1e-5,
                    "example {n} on {device}: gradient element {i} is {value}, expected {expected}"
                );
            }
        }
    }
}

#[test]
fn impossible_targets_have_infinite_loss_and_zero_gradient() {
    let examples = [Example::new(2, &[1, 1]), Example::new(3, &[1, 2]), Example::new(1, &[1, 2])];
    for device in devices() {
        let (losses, grads) = losses_and_gradient(&examples, &device);
        for n in [0, 2] {
            assert_eq!(losses[n], f64::INFINITY, "example {n} on {device}");
            let gradient = gradient_of(&grads, n, 3, 3);
            assert!(gradient.iter().all(|&x| x == 0.0), "example {n} on {device}: {gradient:?}");
        }
        assert!(losses[1].is_finite() && grads.iter().any(|&x| x != 0.0), "{device}");
    }
}

#[test]
fn inputs_without_steps_have_zero_or_infinite_loss() {
    // GPUs only: Burn's composed ctc_loss counts a first step even for an empty input.
    for device in gpus() {
        let examples = [Example::new(0, &[]), Example::new(0, &[1]), Example::new(2, &[1])];
        let (losses, grads) = losses_and_gradient(&examples, &device);
        assert_eq!(losses[..2], [0.0, f64::INFINITY], "{device}");
        for n in [0, 1] {
            assert!(
                gradient_of(&grads, n, 3, 2).iter().all(|&x| x == 0.0),
                "example {n} on {device}"
            );
        }
    }
}

/// Logarithms of tiny probabilities are large. Their rounding errors must not accumulate.
#[test]
fn long_sequences_keep_precision() {
    let target: Vec<usize> = (0..150).map(|i| 1 + (i / 2 + i) % 2).collect();
    let examples = [Example::new(700, &target)];
    let (expected, gradient) = losses_and_gradient(&examples, &WgslDevice::Cpu);
    for device in gpus() {
        let (losses, grads) = losses_and_gradient(&examples, &device);
        assert!(
            (losses[0] / expected[0] - 1.0).abs() < 1e-5,
            "{device}: the loss is {losses:?}, expected {expected:?}"
        );
        for (i, (a, b)) in grads.iter().zip(&gradient).enumerate() {
            assert!((a - b).abs() < 2e-4, "{device}: gradient element {i} is {a}, expected {b}");
        }
    }
}
