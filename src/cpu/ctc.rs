//! The gradient of the connectionist temporal classification loss, which burn-flex lacks.

use burn_backend::{TensorData, TensorMetadata};
use burn_flex::FlexTensor;

/// The gradient of the connectionist temporal classification loss with respect to `log_probs` `[steps, batch, classes]`, for
/// targets `[batch, labels]`, the lengths of inputs and the lengths of targets: see `shaders/ctc/`.
pub(crate) fn ctc_loss_backward(
    log_probs: FlexTensor,
    [targets, input_lengths, target_lengths]: [FlexTensor; 3],
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
        let states: Vec<usize> =
            (0..2 * labels + 1).map(|s| if s % 2 == 0 { blank } else { label(s / 2) }).collect();
        let log_prob = |t: usize, s: usize| log_probs[(t * batch + n) * classes + states[s]];
        let last = states.len() - 1;
        let forward = ctc_ways(steps, &states, blank, false, log_prob);
        let reversed: Vec<usize> = states.iter().rev().copied().collect();
        let backward =
            ctc_ways(steps, &reversed, blank, true, |t, s| log_prob(steps - 1 - t, last - s));
        for t in 0..steps {
            let through = |s: usize| {
                let (a, b) = (forward[t][s], backward[steps - 1 - t][last - s]);
                let never = a == f64::NEG_INFINITY || b == f64::NEG_INFINITY;
                if never { f64::NEG_INFINITY } else { a + b - log_prob(t, s) }
            };
            let all = (0..=last).map(through).fold(f64::NEG_INFINITY, log_add);
            if all == f64::NEG_INFINITY {
                continue;
            }
            for (s, class) in states.iter().enumerate() {
                out[(t * batch + n) * classes + class] -= grad[n] * (through(s) - all).exp();
            }
        }
    }
    FlexTensor::from_data(TensorData::new(out, shape).convert_dtype(dtype))
}

/// For each step and state, the logarithm of the probability of all ways that lead there. `reversed` states are those of a
/// target read from its end.
fn ctc_ways(
    steps: usize,
    states: &[usize],
    blank: usize,
    reversed: bool,
    log_prob: impl Fn(usize, usize) -> f64,
) -> Vec<Vec<f64>> {
    let mut rows: Vec<Vec<f64>> = Vec::with_capacity(steps);
    for t in 0..steps {
        let ways = |s: usize| {
            let Some(before) = rows.last() else {
                return if s < 2 { 0.0 } else { f64::NEG_INFINITY };
            };
            let mut sum = before[s];
            if s > 0 {
                sum = log_add(sum, before[s - 1]);
            }
            // Past a blank between two labels that differ.
            if s > 1
                && states[s] != states[s - 2]
                && states[if reversed { s - 2 } else { s }] != blank
            {
                sum = log_add(sum, before[s - 2]);
            }
            sum
        };
        let row = (0..states.len()).map(|s| ways(s) + log_prob(t, s)).collect();
        rows.push(row);
    }
    rows
}

/// `ln(e^a + e^b)`.
fn log_add(a: f64, b: f64) -> f64 {
    let top = if a.is_nan() { a } else { a.max(b) };
    if top == f64::NEG_INFINITY { top } else { top + ((a - top).exp() + (b - top).exp()).ln() }
}
