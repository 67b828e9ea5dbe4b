// ctc: rows[n, t, s] = log_probs[t, n, class(s)]
//   + log(e^rows[n, t-1, s] + e^rows[n, t-1, s-1] + e^rows[n, t-1, s-2]),
// the log probability of all paths of sequence n that are in state s after step t: the forward recursion of
// connectionist temporal classification (A. Graves et al., 2006). The term of s-2 exists only if that skips
// the blank between two different labels. loss[n] is minus the log probability of the last label or the blank
// after it at the last step; infinite if no path leads there.
// The backward recursion, from the last step and state to the first, has the same form. Recursions from
// `batch` on are backward ones: their rows count steps and states from the end.
// log_probs is [steps, batch, classes]. rows is [recursions, p.rows, states]: it keeps the last p.rows steps.
// Each workgroup computes one recursion, step by step.
// Rounds: for each step, states / WORKGROUP_SIZE + 2.
//#include "lib/grid"
//#include "lib/ctc"

const WORKGROUP_SIZE: u32 = 64u;

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> log_probs: array<f32>;
@group(0) @binding(auto) var<storage, read> targets: array<i32>;
@group(0) @binding(auto) var<storage, read> input_lengths: array<i32>;
@group(0) @binding(auto) var<storage, read> target_lengths: array<i32>;
@group(0) @binding(auto) var<storage, read_write> rows: array<f32>;
@group(0) @binding(auto) var<storage, read_write> loss: array<f32>;
//#include "lib/report"

fn log_sum_exp(a: f32, b: f32, c: f32) -> f32 {
    let maximum = nan_max(a, nan_max(b, c));
    if (is_negative_inf(maximum)) { return maximum; }
    return maximum + ln(exp_(a - maximum) + exp_(b - maximum) + exp_(c - maximum));
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let recursion = group_index(group, groups);
    if (recursion >= p.count) { return; }
    let n = recursion % p.batch;
    let backward = recursion >= p.batch;
    let steps = steps_of(n);
    let states = states_of(n);
    for (var label = local_index; label < states / 2u; label += WORKGROUP_SIZE) {
        let this_class = targets[n * p.labels + label];
        if (u32(this_class) >= p.classes) { report_index(0u, this_class); }
    }
    let row_len = 2u * p.labels + 1u;
    let base = recursion * p.rows * row_len;
    var previous = base;
    // i and j are the step and the state in the order of the recursion.
    for (var i = 0u; i < steps; i++) {
        let row = base + i % p.rows * row_len;
        let t = select(i, steps - 1u - i, backward);
        for (var j = local_index; j < states; j += WORKGROUP_SIZE) {
            let this_class = class_of(n, select(j, states - 1u - j, backward));
            // Paths start in one of the first two states.
            var log_prob = select(-inf(), 0.0, j < 2u);
            if (i > 0u) {
                // The log probabilities of the states j - 1 and j - 2 at the previous step.
                var from_1 = -inf();
                var from_2 = -inf();
                if (j > 0u) { from_1 = rows[previous + j - 1u]; }
                if (j > 1u) {
                    let other_class = class_of(n, select(j - 2u, states + 1u - j, backward));
                    // The class of the later of both states in the target.
                    let later_class = select(this_class, other_class, backward);
                    if (this_class != other_class && later_class != p.blank) {
                        from_2 = rows[previous + j - 2u];
                    }
                }
                log_prob = log_sum_exp(rows[previous + j], from_1, from_2);
            }
            rows[row + j] = log_prob + log_probs[(t * p.batch + n) * p.classes + this_class];
        }
        previous = row;
        storageBarrier();
    }
    if (local_index > 0u || backward) { return; }
    // Without steps, an empty target has probability one and any other has probability zero.
    var total = select(-inf(), 0.0, states == 1u);
    if (steps > 0u) {
        total = rows[previous + states - 1u];
        if (states > 1u) { total = log_sum_exp(total, rows[previous + states - 2u], -inf()); }
    }
    loss[n] = -total;
}
//#use "lib/math"
