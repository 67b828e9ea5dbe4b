// ctc_backward: out[t, n, c] -= grad[n] * the probability of a state of class c at step t, given the target.
// rows is [2, batch, steps, states]: the forward recursions of ctc, then the backward ones. Both include
// log_probs[t], so their product counts it twice. Every path is in some state at each step, so the sum over
// the states is the probability of the target. If that is zero, out does not change.
// log_probs and out are [steps, batch, classes], grad is [batch]; all are packed.
// Each invocation computes one step of one sequence, state by state, so results repeat bit for bit.
// Rounds: 3 states.
//#include "lib/ctc"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> log_probs: array<f32>;
@group(0) @binding(auto) var<storage, read> targets: array<i32>;
@group(0) @binding(auto) var<storage, read> input_lengths: array<i32>;
@group(0) @binding(auto) var<storage, read> target_lengths: array<i32>;
@group(0) @binding(auto) var<storage, read> rows: array<f32>;
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

// The log probability of all paths paths_log_prob a state, up to a constant of the step.
fn paths_log_prob(forward: f32, backward: f32, log_prob: f32) -> f32 {
    if (is_negative_inf(forward) || is_negative_inf(backward)) { return -inf(); }
    return forward + backward - log_prob;
}

fn invocation(i: u32) {
    let t = i / p.batch;
    let n = i % p.batch;
    let steps = steps_of(n);
    if (t >= steps) { return; }
    let states = states_of(n);
    let row_len = 2u * p.labels + 1u;
    let forward = (n * p.steps + t) * row_len;
    // Steps and states of the backward recursion count from the end.
    let backward = ((p.batch + n) * p.steps + steps - 1u - t) * row_len + states - 1u;
    let start = i * p.classes;
    var maximum = -inf();
    for (var s = 0u; s < states; s++) {
        let index = start + class_of(n, s);
        maximum = nan_max(maximum, paths_log_prob(rows[forward + s], rows[backward - s], log_probs[index]));
    }
    if (is_negative_inf(maximum)) { return; }
    var sum = 0.0;
    for (var s = 0u; s < states; s++) {
        let index = start + class_of(n, s);
        let log_prob = paths_log_prob(rows[forward + s], rows[backward - s], log_probs[index]);
        sum += exp_(log_prob - maximum);
    }
    let scale = grad[n] / sum;
    for (var s = 0u; s < states; s++) {
        let index = start + class_of(n, s);
        let log_prob = paths_log_prob(rows[forward + s], rows[backward - s], log_probs[index]);
        out[index] -= scale * exp_(log_prob - maximum);
    }
}
//#include "lib/invocation"
//#use "lib/math"
