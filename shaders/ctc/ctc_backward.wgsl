// ctc_backward: out[t, n, c] -= grad[n] * the probability of being in a state of class c at step t, given the target. `rows` are those of the
// forward recursion, then those of the backward one, each with log_probs[t] in it: the product counts it twice. Every way is in some state
// at a step, so dividing by the sum over states is dividing by the probability of the target. Where that is zero, nothing is changed.
// One invocation does one step of one sequence, its states in order: what falls on one class is added in a fixed order.
//#include "lib/grid"

@group(0) @binding(auto) var<uniform> p: Ctc;
@group(0) @binding(auto) var<storage, read> log_probs: array<f32>;
@group(0) @binding(auto) var<storage, read> targets: array<i32>;
@group(0) @binding(auto) var<storage, read> input_lengths: array<i32>;
@group(0) @binding(auto) var<storage, read> target_lengths: array<i32>;
@group(0) @binding(auto) var<storage, read> rows: array<f32>;
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

//#include "lib/ctc"

// The logarithm of the probability of all ways through a state, up to a constant of the step.
fn through(forward: f32, backward: f32, log_prob: f32) -> f32 {
    if (forward == -inf() || backward == -inf()) { return -inf(); }
    return forward + backward - log_prob;
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.steps * p.batch) { return; }
    let t = i / p.batch;
    let n = i % p.batch;
    let steps = steps_of(n);
    if (t >= steps) { return; }
    let states = states_of(n);
    let width = 2u * p.labels + 1u;
    let forward = (n * p.steps + t) * width;
    // Steps and states of the backward recursion count from the ends.
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
//#use "lib/math"
