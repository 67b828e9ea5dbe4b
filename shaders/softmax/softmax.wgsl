// softmax: out[o, k] = e^(x[o, k] - max) / sum over k, along one axis; LOG: its logarithm.
// The maximum and the sum are found in one walk: whenever the maximum grows, the sum so far is scaled down (Milakov and
// Gimelshein, 2018). Default: one invocation walks one line, whose elements are `stride` apart.
// ROW: LANES invocations walk a line of neighbours together; QUADS: four elements at a time. The input is packed.
//#include "lib/grid"
//#include "lib/quad"

const LANES: u32 = 64u;

struct Params {
    lines: u32,
    // Elements, or quads, of a line.
    len: u32,
    stride: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
//#if QUADS
@group(0) @binding(auto) var<storage, read> x: array<Quad>;
@group(0) @binding(auto) var<storage, read_write> out: array<Quad>;
//#else
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#endif

// The maximum so far, and the sum of e^(x - maximum).
struct Running {
    top: f32,
    total: f32,
}

// What is subtracted from exponents: nothing while all elements are -inf, whose terms are then zero and no number.
fn ground(top: f32) -> f32 {
    return select(top, 0.0, top == -inf());
}

fn joined(a: Running, b: Running) -> Running {
    let top = nan_max(a.top, b.top);
    let base = ground(top);
    return Running(top, a.total * exp_(a.top - base) + b.total * exp_(b.top - base));
}

//#if QUADS
fn with_next(so_far: Running, at: u32) -> Running {
    let v = bitcast<vec4<f32>>(words_of(x[at]));
    let top = nan_max(so_far.top, nan_max(nan_max(v.x, v.y), nan_max(v.z, v.w)));
    let base = ground(top);
    let terms = exp_(v.x - base) + exp_(v.y - base) + exp_(v.z - base) + exp_(v.w - base);
    return Running(top, so_far.total * exp_(so_far.top - base) + terms);
}
//#else
fn with_next(so_far: Running, at: u32) -> Running {
    return joined(so_far, Running(x[at], 1.0));
}
//#endif

// The result for one element.
fn result(v: f32, line: Running) -> f32 {
//#if LOG
    return v - line.top - line.total;
//#else
    return exp_(v - line.top) * line.total;
//#endif
}

//#if ROW
var<workgroup> shared_lines: array<Running, LANES>;

fn combined(lane: u32, mine: Running) -> Running {
    shared_lines[lane] = mine;
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            shared_lines[lane] = joined(shared_lines[lane], shared_lines[lane + half]);
        }
    }
    workgroupBarrier();
    return shared_lines[0];
}
//#endif

//#if ROW
@compute @workgroup_size(LANES)
//#else
@compute @workgroup_size(64)
//#endif
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
//#if ROW
    let index = group_index(group, groups);
    if (index >= p.lines) { return; }
    let base = index * p.len;
    let first = lane;
    let step = LANES;
    let stride = 1u;
//#else
    let index = group_index(group, groups) * 64u + lane;
    if (index >= p.lines) { return; }
    let base = (index / p.stride) * p.stride * p.len + index % p.stride;
    let first = 0u;
    let step = 1u;
    let stride = p.stride;
//#endif
    var line = Running(-inf(), 0.0);
    for (var k = first; k < p.len; k += step) {
        line = with_next(line, base + k * stride);
    }
//#if ROW
    line = combined(lane, line);
//#endif
//#if LOG
    line.total = ln(line.total);
//#else
    line.total = 1.0 / line.total;
//#endif
    for (var k = first; k < p.len; k += step) {
        let at = base + k * stride;
//#if QUADS
        let v = bitcast<vec4<f32>>(words_of(x[at]));
        let y = vec4<f32>(result(v.x, line), result(v.y, line), result(v.z, line), result(v.w, line));
        out[at] = quad_of(bitcast<vec4<u32>>(y));
//#else
        out[at] = result(x[at], line);
//#endif
    }
}
//#use "lib/math"
