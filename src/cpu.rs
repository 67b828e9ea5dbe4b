//! The CPU twin: burn-flex, and what this backend has beyond Burn's contract, computed with it.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use burn_std::Shape;

use crate::kernels::table::{Row, Truth};

/// An elementwise row with one operand, by its truth.
pub(crate) fn map(row: &Row, tensor: FlexTensor) -> FlexTensor {
    let Truth::F1(truth) = row.truth else {
        panic!("{}: the row's truth is of another kind", row.name)
    };
    let (dtype, data) = (tensor.dtype(), tensor.into_data());
    let values: Vec<f64> = data.iter::<f64>().map(truth).collect();
    FlexTensor::from_data(TensorData::new(values, data.shape).convert_dtype(dtype))
}

/// An elementwise row with two operands that broadcast, by its truth.
pub(crate) fn map2(row: &Row, lhs: FlexTensor, rhs: FlexTensor) -> FlexTensor {
    let Truth::F2(truth) = row.truth else {
        panic!("{}: the row's truth is of another kind", row.name)
    };
    let shape = lhs
        .shape()
        .broadcast(&rhs.shape())
        .unwrap_or_else(|error| panic!("{}: {error:?}", row.name));
    let dtype = lhs.dtype();
    let spread = |tensor| Flex::float_expand(tensor, shape.clone()).into_data();
    let (lhs, rhs) = (spread(lhs), spread(rhs));
    let values: Vec<f64> = lhs
        .iter::<f64>()
        .zip(rhs.iter::<f64>())
        .map(|(a, b)| truth(a, b))
        .collect();
    FlexTensor::from_data(TensorData::new(values, shape).convert_dtype(dtype))
}

/// Each row divided by its root mean square, times `gamma`.
pub(crate) fn rms_norm(x: FlexTensor, gamma: FlexTensor, epsilon: f64) -> FlexTensor {
    let axis = x.rank() - 1;
    let mean = Flex::float_mean_dim(Flex::float_mul(x.clone(), x.clone()), axis);
    let scale = Flex::float_sqrt(Flex::float_add_scalar(mean, epsilon.into()));
    let mut shape = vec![1; axis];
    shape.push(gamma.shape().num_elements());
    let gamma = Flex::float_reshape(gamma, Shape::from(shape));
    Flex::float_mul(Flex::float_div(x, scale), gamma)
}

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
        let states: Vec<usize> = (0..2 * labels + 1)
            .map(|s| if s % 2 == 0 { blank } else { label(s / 2) })
            .collect();
        let log_prob = |t: usize, s: usize| log_probs[(t * batch + n) * classes + states[s]];
        let last = states.len() - 1;
        let forward = ctc_ways(steps, &states, blank, false, log_prob);
        let reversed: Vec<usize> = states.iter().rev().copied().collect();
        let backward = ctc_ways(steps, &reversed, blank, true, |t, s| {
            log_prob(steps - 1 - t, last - s)
        });
        for t in 0..steps {
            let through = |s: usize| {
                let (a, b) = (forward[t][s], backward[steps - 1 - t][last - s]);
                let never = a == f64::NEG_INFINITY || b == f64::NEG_INFINITY;
                if never {
                    f64::NEG_INFINITY
                } else {
                    a + b - log_prob(t, s)
                }
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
        let row = (0..states.len())
            .map(|s| ways(s) + log_prob(t, s))
            .collect();
        rows.push(row);
    }
    rows
}

/// `ln(e^a + e^b)`.
fn log_add(a: f64, b: f64) -> f64 {
    let top = if a.is_nan() { a } else { a.max(b) };
    if top == f64::NEG_INFINITY {
        top
    } else {
        top + ((a - top).exp() + (b - top).exp()).ln()
    }
}
