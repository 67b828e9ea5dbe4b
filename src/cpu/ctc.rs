//! The connectionist temporal classification (CTC) loss with checked labels, and its gradient,
//! which burn-flex lacks.

use burn_backend::ops::ModuleOps;
use burn_backend::{TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};

use super::index::fail_outside;

/// Computes the CTC losses `[batch]`; arguments as in [`ctc_loss_backward`].
///
/// # Panics
///
/// Panics if a target is not a class.
pub(crate) fn ctc_loss(
    log_probs: FlexTensor,
    targets: FlexTensor,
    input_lengths: FlexTensor,
    target_lengths: FlexTensor,
    blank: usize,
) -> FlexTensor {
    let classes = log_probs.shape()[2];
    let outside = |label: &i64| !(0..classes as i64).contains(label);
    if let Some(label) = targets.clone().into_data().iter::<i64>().find(outside) {
        fail_outside("ctc_loss", label, 2, classes);
    }
    Flex::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank)
}

/// Computes the gradient of the CTC loss with respect to `log_probs` `[steps, batch, classes]`,
/// from targets `[batch, labels]`, input lengths `[batch]`, target lengths `[batch]` and the
/// gradient of the losses `[batch]`. `shaders/ctc/` has the formulas.
pub(crate) fn ctc_loss_backward(
    log_probs: FlexTensor,
    targets: FlexTensor,
    input_lengths: FlexTensor,
    target_lengths: FlexTensor,
    grad: FlexTensor,
    blank: usize,
) -> FlexTensor {
    let [max_steps, batch, classes] = log_probs.shape().dims();
    let [_, max_labels] = targets.shape().dims();
    let (dtype, shape) = (log_probs.dtype(), log_probs.shape());
    let log_probs: Vec<f64> = log_probs.into_data().iter().collect();
    let grad: Vec<f64> = grad.into_data().iter().collect();
    let [targets, input_lengths, target_lengths] = [targets, input_lengths, target_lengths]
        .map(|tensor| tensor.into_data().iter().collect::<Vec<i64>>());
    let mut out = vec![0.0; log_probs.len()];
    for n in 0..batch {
        let steps = input_lengths[n].clamp(0, max_steps as i64) as usize;
        let labels = target_lengths[n].clamp(0, max_labels as i64) as usize;
        let label = |i: usize| targets[n * max_labels + i].clamp(0, classes as i64 - 1) as usize;
        // The class of each state: the labels, with a blank before and after each.
        let states: Vec<usize> =
            (0..2 * labels + 1).map(|s| if s % 2 == 0 { blank } else { label(s / 2) }).collect();
        let log_prob = |t: usize, s: usize| log_probs[(t * batch + n) * classes + states[s]];
        let last_state = states.len() - 1;
        let forward = path_log_probs(steps, &states, blank, false, log_prob);
        let reversed: Vec<usize> = states.iter().rev().copied().collect();
        let backward = path_log_probs(steps, &reversed, blank, true, |t, s| {
            log_prob(steps - 1 - t, last_state - s)
        });
        for t in 0..steps {
            // The log probability of all paths through state s at step t.
            let through = |s: usize| {
                let (a, b) = (forward[t][s], backward[steps - 1 - t][last_state - s]);
                let impossible = a == f64::NEG_INFINITY || b == f64::NEG_INFINITY;
                if impossible { f64::NEG_INFINITY } else { a + b - log_prob(t, s) }
            };
            let total = (0..=last_state).map(through).fold(f64::NEG_INFINITY, log_add);
            if total == f64::NEG_INFINITY {
                continue;
            }
            for (s, class) in states.iter().enumerate() {
                out[(t * batch + n) * classes + class] -= grad[n] * (through(s) - total).exp();
            }
        }
    }
    FlexTensor::from_data(TensorData::new(out, shape).convert_dtype(dtype))
}

/// Computes the log probability of all paths to each state at each step: `[steps][states]`. If
/// `reversed`, states and steps count from the end of the target and of the input.
fn path_log_probs(
    steps: usize,
    states: &[usize],
    blank: usize,
    reversed: bool,
    log_prob: impl Fn(usize, usize) -> f64,
) -> Vec<Vec<f64>> {
    let mut rows: Vec<Vec<f64>> = Vec::with_capacity(steps);
    for t in 0..steps {
        let incoming = |s: usize| {
            let Some(previous) = rows.last() else {
                // Paths start in one of the first two states.
                return if s < 2 { 0.0 } else { f64::NEG_INFINITY };
            };
            let mut sum = previous[s];
            if s > 0 {
                sum = log_add(sum, previous[s - 1]);
            }
            // A path can skip the blank between two different labels. The state that it skips to,
            // in the order of the target, must not be blank: a label can be of the blank class.
            if s > 1
                && states[s] != states[s - 2]
                && states[if reversed { s - 2 } else { s }] != blank
            {
                sum = log_add(sum, previous[s - 2]);
            }
            sum
        };
        let row = (0..states.len()).map(|s| incoming(s) + log_prob(t, s)).collect();
        rows.push(row);
    }
    rows
}

/// Returns `ln(e^a + e^b)`; NaN if either is NaN.
fn log_add(a: f64, b: f64) -> f64 {
    // `max` ignores NaN.
    let max = if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
    if max == f64::NEG_INFINITY { max } else { max + ((a - max).exp() + (b - max).exp()).ln() }
}

#[cfg(test)]
mod tests {
    use super::log_add;

    #[test]
    fn log_add_propagates_nan_and_zero_probabilities() {
        let (nan, zero) = (f64::NAN, f64::NEG_INFINITY);
        for (a, b) in [(nan, 0.0), (0.0, nan), (nan, zero), (zero, nan)] {
            assert!(log_add(a, b).is_nan(), "{a} and {b}");
        }
        assert_eq!(log_add(zero, zero), zero);
        assert_eq!(log_add(zero, -1.5), -1.5);
        assert!((log_add(0.25f64.ln(), 0.5f64.ln()) - 0.75f64.ln()).abs() < 1e-15);
    }
}
