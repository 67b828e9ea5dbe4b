// ctc: the forward recursion of the connectionist temporal classification loss (A. Graves et al., 2006), in
// logarithms: the log probability of all paths that are in state s after step t,
//   rows[t, s] = log_probs[t, class(s)] + log(e^rows[t-1, s] + e^rows[t-1, s-1] + e^rows[t-1, s-2]),
// where s - 2 counts only if that skips the blank between two different labels. loss[n] is minus the log
// probability of the last label or the blank after it at the last step; infinite if no path leads there.
// The backward recursion, from the last step and state to the first, has the same form: the sequences from
// `batch` on are those of the batch reversed, and their rows count steps and states from the end.
// A workgroup computes one sequence, step by step. It keeps the last `rows` rows.
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

fn log_sum_exp(a: f32, b: f32, c: f32) -> f32 {
    let top = nan_max(a, nan_max(b, c));
    if (top == -inf()) { return top; }
    return top + ln(exp_(a - top) + exp_(b - top) + exp_(c - top));
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let sequence = group_index(group, groups);
    if (sequence >= p.count) { return; }
    let n = sequence % p.batch;
    let reversed = sequence >= p.batch;
    let steps = steps_of(n);
    let states = states_of(n);
    let width = 2u * p.labels + 1u;
    let base = sequence * p.rows * width;
    var previous = base;
    for (var i = 0u; i < steps; i++) {
        let row = base + i % p.rows * width;
        let t = select(i, steps - 1u - i, reversed);
        for (var j = local_index; j < states; j += WORKGROUP_SIZE) {
            let label = class_of(n, select(j, states - 1u - j, reversed));
            // Paths start in one of the first two states.
            var log_prob = select(-inf(), 0.0, j < 2u);
            if (i > 0u) {
                var from_1 = -inf();
                var from_2 = -inf();
                if (j > 0u) { from_1 = rows[previous + j - 1u]; }
                if (j > 1u) {
                    let other = class_of(n, select(j - 2u, states + 1u - j, reversed));
                    // The class of the later state in the target.
                    let later = select(label, other, reversed);
                    if (label != other && later != p.blank) { from_2 = rows[previous + j - 2u]; }
                }
                log_prob = log_sum_exp(rows[previous + j], from_1, from_2);
            }
            rows[row + j] = log_prob + log_probs[(t * p.batch + n) * p.classes + label];
        }
        previous = row;
        storageBarrier();
    }
    if (local_index > 0u || reversed) { return; }
    // Without steps, an empty target has probability one and any other has probability zero.
    var total = select(-inf(), 0.0, states == 1u);
    if (steps > 0u) {
        total = rows[previous + states - 1u];
        if (states > 1u) { total = log_sum_exp(total, rows[previous + states - 2u], -inf()); }
    }
    loss[n] = -total;
}
//#use "lib/math"
