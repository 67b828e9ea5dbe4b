// rms_norm: out[r, k] = x[r, k] * gamma[k] / sqrt(mean over k of x[r, k]^2 + epsilon), for rows of `len` elements.
// A workgroup of LANES invocations normalises one row. (B. Zhang and R. Sennrich, 2019.)
//#include "lib/grid"

const LANES: u32 = 64u;

struct Params {
    rows: u32,
    len: u32,
    epsilon: f32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> gamma: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

var<workgroup> squares: array<f32, LANES>;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_index(group, groups);
    if (row >= p.rows) { return; }
    let base = row * p.len;
    var sum = 0.0;
    for (var k = lane; k < p.len; k += LANES) {
        sum = fma(x[base + k], x[base + k], sum);
    }
    squares[lane] = sum;
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            squares[lane] += squares[lane + half];
        }
    }
    workgroupBarrier();
    let scale = 1.0 / sqrt(squares[0] / f32(p.len) + p.epsilon);
    for (var k = lane; k < p.len; k += LANES) {
        out[base + k] = x[base + k] * scale * gamma[k];
    }
}
