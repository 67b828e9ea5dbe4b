// norm: out[r, k] = (x[r, k] - mean) * gamma[k] / sqrt(mean of (x - mean)^2 + epsilon) + beta[k], the means over the
// `len` elements of a row. CENTER: with its mean (J. L. Ba et al., 2016); otherwise zero stands for it, and there
// is no beta (B. Zhang and R. Sennrich, 2019).
// Default: one invocation walks one row. ROW: a workgroup of LANES invocations does.
//#include "lib/grid"

const LANES: u32 = 64u;

struct Params {
    rows: u32,
    len: u32,
    epsilon: f32,
    has_beta: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> gamma: array<f32>;
//#if CENTER
@group(0) @binding(auto) var<storage, read> beta: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

// The sums of what each invocation brings, divided by the length of a row.
//#if ROW
var<workgroup> sums: array<vec2<f32>, LANES>;

fn row_mean(lane: u32, part: vec2<f32>) -> vec2<f32> {
    sums[lane] = part;
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            sums[lane] += sums[lane + half];
        }
    }
    workgroupBarrier();
    let result = sums[0] / f32(p.len);
    workgroupBarrier();
    return result;
}
//#else
fn row_mean(lane: u32, part: vec2<f32>) -> vec2<f32> {
    return part / f32(p.len);
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
    let row = group_index(group, groups);
    let first = lane;
    let step = LANES;
//#else
    let row = group_index(group, groups) * 64u + lane;
    let first = 0u;
    let step = 1u;
//#endif
    if (row >= p.rows) { return; }
    let base = row * p.len;
    var mean = 0.0;
//#if CENTER
    for (var k = first; k < p.len; k += step) {
        mean += x[base + k];
    }
    mean = row_mean(lane, vec2(mean, 0.0)).x;
//#endif
    var moments = vec2(0.0, 0.0);
    for (var k = first; k < p.len; k += step) {
        let d = x[base + k] - mean;
        moments += vec2(d, d * d);
    }
    moments = row_mean(lane, moments);
    // A large mean is rounded; what it is off by is the mean of the differences.
    var rest = 0.0;
//#if CENTER
    rest = moments.x;
//#endif
    let scale = 1.0 / sqrt(max(moments.y - rest * rest, 0.0) + p.epsilon);
    for (var k = first; k < p.len; k += step) {
        let y = (x[base + k] - mean - rest) * scale * gamma[k];
//#if CENTER
        out[base + k] = y + select(0.0, beta[k], p.has_beta == 1u);
//#else
        out[base + k] = y;
//#endif
    }
}
