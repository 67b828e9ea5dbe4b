// softmax: out[l, k] = e^(x[l, k] - max) / sum over k, along one axis of a packed tensor; LOG: its logarithm.
// Maximum and sum are found in one pass: the sum is rescaled whenever the maximum grows (M. Milakov and
// N. Gimelshein, 2018). A team reduces a line, whose loads are `stride` apart.
//#include "lib/grid"
//#include "lib/vector"
//#include "lib/team"

struct Params {
    lines: u32,
    // Loads of a line.
    len: u32,
    stride: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<Load>;
@group(0) @binding(auto) var<storage, read_write> out: array<Load>;

// A maximum, and the sum of e^(x - maximum).
struct Partial {
    maximum: f32,
    sum: f32,
}

//#if VEC4
fn max_of(v: Values) -> f32 {
    return nan_max(nan_max(v.x, v.y), nan_max(v.z, v.w));
}

fn exp_of(v: Values) -> Values {
    return vec4<f32>(exp_(v.x), exp_(v.y), exp_(v.z), exp_(v.w));
}
//#else
fn max_of(v: Values) -> f32 {
    return v;
}

fn exp_of(v: Values) -> Values {
    return exp_(v);
}
//#endif

// The offset of the exponents: zero while all elements are -inf, because -inf - -inf is NaN.
fn exponent_offset(maximum: f32) -> f32 {
    return select(maximum, 0.0, maximum == -inf());
}

fn combine(a: Partial, b: Partial) -> Partial {
    let maximum = nan_max(a.maximum, b.maximum);
    let offset = exponent_offset(maximum);
    return Partial(maximum, a.sum * exp_(a.maximum - offset) + b.sum * exp_(b.maximum - offset));
}

//#if SUBGROUP
fn shuffle_xor(partial: Partial, mask: u32) -> Partial {
    return Partial(subgroupShuffleXor(partial.maximum, mask), subgroupShuffleXor(partial.sum, mask));
}
//#endif

fn accumulate(so_far: Partial, v: Values) -> Partial {
    let maximum = nan_max(so_far.maximum, max_of(v));
    let offset = exponent_offset(maximum);
    return Partial(maximum, so_far.sum * exp_(so_far.maximum - offset) + sum_of(exp_of(v - offset)));
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let team = group_index(group, groups) * TEAMS + team_index(local_index);
    if (may_exit(team, p.lines)) { return; }
    let index = min(team, p.lines - 1u);
    let base = (index / p.stride) * p.stride * p.len + index % p.stride;
    let first = base + member_index(local_index) * p.stride;
    let step = TEAM_SIZE * p.stride;
    let end = base + p.len * p.stride;
    var line = Partial(-inf(), 0.0);
    for (var at = first; at < end; at += step) {
        line = accumulate(line, to_values(x[at]));
    }
    line = team_combine(local_index, line);
//#if LOG
    let log_sum = ln(line.sum);
//#else
    let factor = 1.0 / line.sum;
//#endif
    for (var at = first; at < end; at += step) {
        let v = to_values(x[at]);
//#if LOG
        out[at] = from_values(v - line.maximum - log_sum);
//#else
        out[at] = from_values(exp_of(v - line.maximum) * factor);
//#endif
    }
}
//#use "lib/math"
