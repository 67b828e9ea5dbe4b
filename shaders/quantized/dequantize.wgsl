// dequantize: out[i] = x[i] * its block's scale, x being 8-bit integers, four in a word, the first in the lowest byte.
// INTEGERS: the integers themselves.
// Default: x is packed, one invocation reads one word, and out moves as vec4. VIEW: x is seen through its
// strides, counted in bytes; one invocation computes one element; there is one scale.
//#include "lib/grid"
//#if VIEW
//#include "lib/layout"
//#endif

alias O = f32;

struct Params {
    // Elements, elements in a block.
    len: u32,
    block: u32,
    pad0: u32,
    pad1: u32,
//#if VIEW
    walk: Walk,
//#endif
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
//#if !INTEGERS
@group(0) @binding(auto) var<storage, read> scales: array<f32>;
//#endif
//#if VIEW
@group(0) @binding(auto) var<storage, read_write> out: array<O>;
//#else
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<O>>;
//#endif

// The byte of a word as a signed integer.
fn byte(word: u32, at: u32) -> i32 {
    return bitcast<i32>(word << (24u - 8u * at)) >> 24u;
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
//#if VIEW
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
    let at = locate(i).x;
    let value = byte(x[at >> 2u], at & 3u);
//#if INTEGERS
    out[i] = value;
//#else
    out[i] = scales[0] * f32(value);
//#endif
//#else
    let w = group_index(group, groups) * 64u + lane;
    let i = w * 4u;
    if (i >= p.len) { return; }
    let word = x[w];
    let values = vec4<i32>(byte(word, 0u), byte(word, 1u), byte(word, 2u), byte(word, 3u));
//#if INTEGERS
    out[w] = values;
//#else
    var block = i / p.block;
    var end = (block + 1u) * p.block;
    var scale = vec4<f32>();
//#repeat K 4
    // Past the last element the last block goes on.
    if (i + K == end && i + K < p.len) {
        block += 1u;
        end += p.block;
    }
    scale[K] = scales[block];
//#end
    out[w] = scale * vec4<f32>(values);
//#endif
//#endif
}
