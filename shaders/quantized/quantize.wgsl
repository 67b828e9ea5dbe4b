// quantize: out[w] = the elements 4w to 4w + 3 of x as 8-bit integers, the first in the lowest byte: each times
// the reciprocal of its block's scale, rounded (halves away from zero), kept in range. NaN becomes zero.
// INTEGERS: x holds the integers, which are only packed.
// One invocation writes one word; x and out are packed.
//#include "lib/grid"

struct Params {
    // Elements, elements in a block, the least integer.
    len: u32,
    block: u32,
    low: f32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
//#if INTEGERS
@group(0) @binding(auto) var<storage, read> x: array<vec4<i32>>;
//#else
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(auto) var<storage, read> reciprocals: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<u32>;

//#if !INTEGERS
fn nearest(steps: f32) -> i32 {
    if (is_nan(steps)) { return 0; }
    let x = clamp(steps, p.low, 127.0);
    let whole = trunc(x);
    return i32(whole) + select(0, i32(sign(x)), abs(x - whole) >= 0.5);
}
//#endif

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let w = group_index(group, groups) * 64u + lane;
    let i = w * 4u;
    if (i >= p.len) { return; }
    let values = x[w];
    let count = min(p.len - i, 4u);
    var word = 0u;
//#if INTEGERS
//#repeat K 4
    if (K < count) { word |= (u32(values[K]) & 255u) << (8u * K); }
//#end
//#else
    var block = i / p.block;
    var end = (block + 1u) * p.block;
//#repeat K 4
    if (K < count) {
        if (i + K == end) {
            block += 1u;
            end += p.block;
        }
        word |= (u32(nearest(values[K] * reciprocals[block])) & 255u) << (8u * K);
    }
//#end
//#endif
    out[w] = word;
}
//#use "lib/math"
