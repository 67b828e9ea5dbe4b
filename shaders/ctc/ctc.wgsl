// ctc: the forward recursion of the connectionist temporal classification loss, in logarithms (A. Graves et al., 2006).
//   row[t, s] = log_probs[t, class(s)] + log(e^row[t-1, s] + e^row[t-1, s-1] + e^row[t-1, s-2]),
// where s - 2 counts only if that skips a blank between two different labels: the logarithm of the probability of all ways to be in state
// s after step t. loss[n] is minus that of being in the last label or the blank after it at the end, infinite if there is no way.
// The backward recursion, from the last step and state to the first, has the same form: sequences from `batch` on
// are those of the batch read from their ends, and their rows count steps and states from there.
// A workgroup of LANES invocations walks one sequence, step by step. Only the last `rows` rows are kept.
//#include "lib/grid"

const LANES: u32 = 64u;

@group(0) @binding(auto) var<uniform> p: Ctc;
@group(0) @binding(auto) var<storage, read> log_probs: array<f32>;
@group(0) @binding(auto) var<storage, read> targets: array<i32>;
@group(0) @binding(auto) var<storage, read> input_lengths: array<i32>;
@group(0) @binding(auto) var<storage, read> target_lengths: array<i32>;
@group(0) @binding(auto) var<storage, read_write> rows: array<f32>;
@group(0) @binding(auto) var<storage, read_write> loss: array<f32>;

//#include "lib/ctc"

fn log_sum_exp(a: f32, b: f32, c: f32) -> f32 {
    let top = nan_max(a, nan_max(b, c));
    if (top == -inf()) { return top; }
    return top + ln(exp_(a - top) + exp_(b - top) + exp_(c - top));
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let sequence = group_index(group, groups);
    if (sequence >= p.sequences) { return; }
    let n = sequence % p.batch;
    let reversed = sequence >= p.batch;
    let steps = steps_of(n);
    let states = states_of(n);
    let width = 2u * p.labels + 1u;
    let base = sequence * p.rows * width;
    var before = base;
    for (var i = 0u; i < steps; i++) {
        let row = base + i % p.rows * width;
        let t = select(i, steps - 1u - i, reversed);
        for (var j = lane; j < states; j += LANES) {
            let label = class_of(n, select(j, states - 1u - j, reversed));
            // A way starts in one of the first two states.
            var ways = select(-inf(), 0.0, j < 2u);
            if (i > 0u) {
                var one = -inf();
                var two = -inf();
                if (j > 0u) { one = rows[before + j - 1u]; }
                if (j > 1u) {
                    let other = class_of(n, select(j - 2u, states + 1u - j, reversed));
                    // The later one in the target.
                    let end = select(label, other, reversed);
                    if (label != other && end != p.blank) { two = rows[before + j - 2u]; }
                }
                ways = log_sum_exp(rows[before + j], one, two);
            }
            rows[row + j] = ways + log_probs[(t * p.batch + n) * p.classes + label];
        }
        before = row;
        storageBarrier();
    }
    if (lane > 0u || reversed) { return; }
    // Nothing said of nothing heard is certain.
    var all = select(-inf(), 0.0, states == 1u);
    if (steps > 0u) {
        all = rows[before + states - 1u];
        if (states > 1u) { all = log_sum_exp(all, rows[before + states - 2u], -inf()); }
    }
    loss[n] = -all;
}
//#use "lib/math"
