//! The connectionist temporal classification loss against its definition: a sum over every way to spell a target.

mod common;

use burn::backend::Autodiff;
use burn::tensor::module::ctc_loss;
use burn::tensor::{Int, Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};
use common::{devices, gpus};

type Ad = Autodiff<Wgsl>;

const CLASSES: usize = 3;

/// One input with its target: log probabilities `[steps][CLASSES]`, and the labels. The blank is 0.
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

    /// Minus the logarithm of the sum over all sequences of classes that spell the target.
    fn loss(&self) -> f64 {
        let steps = self.log_probs.len();
        let mut sum = 0.0;
        for number in 0..CLASSES.pow(steps as u32) {
            let way: Vec<usize> =
                (0..steps).map(|t| number / CLASSES.pow(t as u32) % CLASSES).collect();
            let mut spelt = way.clone();
            spelt.dedup();
            spelt.retain(|&class| class != 0);
            if spelt == self.target {
                sum += way.iter().zip(&self.log_probs).map(|(&c, row)| row[c]).sum::<f64>().exp();
            }
        }
        -sum.ln()
    }

    /// The loss's gradient, by finite differences.
    fn gradient(&mut self) -> Vec<f64> {
        let h = 1e-5;
        let mut out = Vec::new();
        for t in 0..self.log_probs.len() {
            for c in 0..CLASSES {
                let x = self.log_probs[t][c];
                self.log_probs[t][c] = x + h;
                let above = self.loss();
                self.log_probs[t][c] = x - h;
                out.push((above - self.loss()) / (2.0 * h));
                self.log_probs[t][c] = x;
            }
        }
        out
    }
}

/// The losses of a batch and their gradients, `[steps, batch, classes]`, weighted by 1, 2, 3, ....
fn on_device(examples: &[Example], device: &WgslDevice) -> (Vec<f64>, Vec<f64>) {
    let batch = examples.len();
    let steps = examples.iter().map(|e| e.log_probs.len()).max().unwrap_or(0);
    let labels = examples.iter().map(|e| e.target.len()).max().unwrap_or(0);
    // What is past an example's end must not matter.
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
    let grad = leaf.grad(&grads).expect("it is tracked").into_data();
    (losses.into_data().iter().collect(), grad.iter().collect())
}

fn gradient_of(grads: &[f64], n: usize, batch: usize, steps: usize) -> Vec<f64> {
    let at = |t: usize, c: usize| grads[(t * batch + n) * CLASSES + c] / (n + 1) as f64;
    (0..steps * CLASSES).map(|i| at(i / CLASSES, i % CLASSES)).collect()
}

#[test]
fn losses_and_gradients_agree_with_their_definition() {
    let mut examples = [
        Example::new(5, &[1, 2]),
        Example::new(6, &[1, 1, 2]),
        Example::new(4, &[2, 2]),
        // Just long enough for a blank between the two.
        Example::new(3, &[1, 1]),
        Example::new(6, &[]),
        Example::new(1, &[2]),
        Example::new(5, &[2, 1, 2, 1, 2]),
    ];
    let truths: Vec<_> = examples.iter_mut().map(|e| (e.loss(), e.gradient())).collect();
    for device in devices() {
        let (losses, grads) = on_device(&examples, &device);
        for (n, (loss, gradient)) in truths.iter().enumerate() {
            assert!((losses[n] - loss).abs() < 1e-5, "{n} on {device}: {} for {loss}", losses[n]);
            let steps = examples[n].log_probs.len();
            let values = gradient_of(&grads, n, examples.len(), 6);
            for (i, value) in values.iter().enumerate() {
                let truth = if i < steps * CLASSES { gradient[i] } else { 0.0 };
                assert!(
                    (value - truth).abs() < 1e-5,
                    "{n} on {device}: the gradient's element {i} is {value}, the truth {truth}"
                );
            }
        }
    }
    let fallbacks = burn_wgsl::fallbacks();
    assert!(!fallbacks.keys().any(|op| op.contains("ctc")), "{fallbacks:?}");
}

#[test]
fn what_cannot_be_spelt_has_an_infinite_loss_and_no_gradient() {
    let examples = [Example::new(2, &[1, 1]), Example::new(3, &[1, 2]), Example::new(1, &[1, 2])];
    for device in devices() {
        let (losses, grads) = on_device(&examples, &device);
        for n in [0, 2] {
            assert_eq!(losses[n], f64::INFINITY, "{n} on {device}");
            let gradient = gradient_of(&grads, n, 3, 3);
            assert!(gradient.iter().all(|&x| x == 0.0), "{n} on {device}: {gradient:?}");
        }
        assert!(losses[1].is_finite() && grads.iter().any(|&x| x != 0.0), "{device}");
    }
}

#[test]
fn of_nothing_heard_nothing_is_certain() {
    // Not on the CPU: Burn's composition counts a first step even then.
    for device in gpus() {
        let examples = [Example::new(0, &[]), Example::new(0, &[1]), Example::new(2, &[1])];
        let (losses, grads) = on_device(&examples, &device);
        assert_eq!(losses[..2], [0.0, f64::INFINITY], "{device}");
        for n in [0, 1] {
            assert!(gradient_of(&grads, n, 3, 2).iter().all(|&x| x == 0.0), "{n} on {device}");
        }
    }
}

/// Logarithms of tiny probabilities are large numbers, whose roundings must not add up.
#[test]
fn a_long_sequence_keeps_its_digits() {
    let target: Vec<usize> = (0..150).map(|i| 1 + (i / 2 + i) % 2).collect();
    let examples = [Example::new(700, &target)];
    let (truth, gradient) = on_device(&examples, &WgslDevice::Cpu);
    for device in gpus() {
        let (losses, grads) = on_device(&examples, &device);
        assert!((losses[0] / truth[0] - 1.0).abs() < 1e-5, "{device}: {losses:?} for {truth:?}");
        for (i, (a, b)) in grads.iter().zip(&gradient).enumerate() {
            assert!((a - b).abs() < 2e-4, "{device}: element {i} is {a}, the truth {b}");
        }
    }
}
