// softmax: out[o, k] = e^(x[o, k] - max) / sum over k, along one axis; LOG: its logarithm.
// The maximum and the sum are found in one walk: whenever the maximum grows, the sum so far is scaled down (Milakov and
// Gimelshein, 2018). A team walks a line, whose words are `stride` apart. The input is packed.
//#include "lib/grid"
//#include "lib/row"
//#include "lib/team"

struct Params {
    lines: u32,
    // Words of a line.
    len: u32,
    stride: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<Word>;
@group(0) @binding(auto) var<storage, read_write> out: array<Word>;

// The maximum so far, and the sum of e^(x - maximum).
struct Running {
    top: f32,
    total: f32,
}

alias Part = Running;

//#if QUADS
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

// What is subtracted from exponents: nothing while all elements are -inf, whose terms are then zero and no number.
fn ground(top: f32) -> f32 {
    return select(top, 0.0, top == -inf());
}

fn joined(a: Running, b: Running) -> Running {
    let top = nan_max(a.top, b.top);
    let base = ground(top);
    return Running(top, a.total * exp_(a.top - base) + b.total * exp_(b.top - base));
}

//#if SUBGROUP
fn shuffled(part: Running, mask: u32) -> Running {
    return Running(subgroupShuffleXor(part.top, mask), subgroupShuffleXor(part.total, mask));
}
//#endif

fn with_next(so_far: Running, v: Values) -> Running {
    let top = nan_max(so_far.top, max_of(v));
    let base = ground(top);
    return Running(top, so_far.total * exp_(so_far.top - base) + sum_of(exp_of(v - base)));
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let team = group_index(group, groups) * TEAMS + team_of(lane);
    if (is_spare(team, p.lines)) { return; }
    let index = min(team, p.lines - 1u);
    let base = (index / p.stride) * p.stride * p.len + index % p.stride;
    let first = base + member_of(lane) * p.stride;
    let step = SPAN * p.stride;
    let end = base + p.len * p.stride;
    var line = Running(-inf(), 0.0);
    for (var at = first; at < end; at += step) {
        line = with_next(line, values_of(x[at]));
    }
    line = over_team(lane, line);
//#if LOG
    let log_total = ln(line.total);
//#else
    let factor = 1.0 / line.total;
//#endif
    for (var at = first; at < end; at += step) {
        let v = values_of(x[at]);
//#if LOG
        out[at] = word_of(v - line.top - log_total);
//#else
        out[at] = word_of(exp_of(v - line.top) * factor);
//#endif
    }
}
//#use "lib/math"
