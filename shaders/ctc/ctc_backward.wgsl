// ctc_backward: out[t, n, c] -= grad[n] * the probability of a state of class c at step t, given the target.
// `rows` has the rows of the forward recursion, then those of the backward recursion. Both include
// log_probs[t], so their product counts it twice. Every path is in some state at each step, so the sum over
// the states is the probability of the target. If that is zero, out does not change.
// Each invocation computes one step of one sequence. It adds the states in order, so results repeat bit for
// bit.
//#include "lib/ctc"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> log_probs: array<f32>;
@group(0) @binding(auto) var<storage, read> targets: array<i32>;
@group(0) @binding(auto) var<storage, read> input_lengths: array<i32>;
@group(0) @binding(auto) var<storage, read> target_lengths: array<i32>;
@group(0) @binding(auto) var<storage, read> rows: array<f32>;
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

// The log probability of all paths through a state, up to a constant of the step.
fn through(forward: f32, backward: f32, log_prob: f32) -> f32 {
    if (forward == -inf() || backward == -inf()) { return -inf(); }
    return forward + backward - log_prob;
}

fn invocation(i: u32) {
    let t = i / p.batch;
    let n = i % p.batch;
    let steps = steps_of(n);
    if (t >= steps) { return; }
    let states = states_of(n);
    let width = 2u * p.labels + 1u;
    let forward = (n * p.steps + t) * width;
    // Steps and states of the backward recursion count from the end.
    let backward = ((p.batch + n) * p.steps + steps - 1u - t) * width + states - 1u;
    let start = i * p.classes;
    var top = -inf();
    for (var s = 0u; s < states; s++) {
        top = nan_max(top, through(rows[forward + s], rows[backward - s], log_probs[start + class_of(n, s)]));
    }
    if (top == -inf()) { return; }
    var sum = 0.0;
    for (var s = 0u; s < states; s++) {
        sum += exp_(through(rows[forward + s], rows[backward - s], log_probs[start + class_of(n, s)]) - top);
    }
    let scale = grad[n] / sum;
    for (var s = 0u; s < states; s++) {
        let at = start + class_of(n, s);
        out[at] -= scale * exp_(through(rows[forward + s], rows[backward - s], log_probs[at]) - top);
    }
}
//#include "lib/invocation"
//#use "lib/math"
