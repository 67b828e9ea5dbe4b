// softmax: out[o, k] = e^(x[o, k] - max) / sum over k, along one axis; LOG: its logarithm.
// Default: one invocation walks one line. ROW: a workgroup of LANES invocations does.
// The input is packed; a line's elements are `stride` apart.
//#include "lib/grid"

const LANES: u32 = 64u;

struct Params {
    lines: u32,
    len: u32,
    stride: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

//#if ROW
var<workgroup> shared_value: array<f32, LANES>;

fn combine_max(lane: u32, value: f32) -> f32 {
    shared_value[lane] = value;
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            shared_value[lane] = nan_max(shared_value[lane], shared_value[lane + half]);
        }
    }
    workgroupBarrier();
    let result = shared_value[0];
    workgroupBarrier();
    return result;
}

fn combine_sum(lane: u32, value: f32) -> f32 {
    shared_value[lane] = value;
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            shared_value[lane] += shared_value[lane + half];
        }
    }
    workgroupBarrier();
    let result = shared_value[0];
    workgroupBarrier();
    return result;
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
    let line = group_index(group, groups);
    let first = lane;
    let step = LANES;
//#else
    let line = group_index(group, groups) * 64u + lane;
    let first = 0u;
    let step = 1u;
//#endif
    if (line >= p.lines) { return; }
    let base = (line / p.stride) * p.stride * p.len + line % p.stride;
    var top = -inf();
    for (var k = first; k < p.len; k += step) {
        top = nan_max(top, x[base + k * p.stride]);
    }
//#if ROW
    top = combine_max(lane, top);
//#endif
    var total = 0.0;
    for (var k = first; k < p.len; k += step) {
        total += exp_(x[base + k * p.stride] - top);
    }
//#if ROW
    total = combine_sum(lane, total);
//#endif
//#if LOG
    let shift = top + ln(total);
    for (var k = first; k < p.len; k += step) {
        let at = base + k * p.stride;
        out[at] = x[at] - shift;
    }
//#else
    let scale = 1.0 / total;
    for (var k = first; k < p.len; k += step) {
        let at = base + k * p.stride;
        out[at] = exp_(x[at] - top) * scale;
    }
//#endif
}
//#use "lib/math"
