// half: out[i] = x[i], where x or out holds floats of 16 bits, two to a word. Rounds to the nearest, ties to even.
// FROM, TO: how a float lies in x and in out: 32, 16 (IEEE half precision) or 8 (the upper half of an f32: bf16,
// named for its exponent of 8 bits).
// Each invocation makes two neighbours, so that it owns the word it writes. The result is packed; x is read through its strides.
//#include "lib/grid"
//#include "lib/layout"

struct Params {
    len: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
    // Of x.
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
@group(0) @binding(auto) var<storage, read_write> out: array<u32>;

fn load(i: u32) -> f32 {
    let at = locate(i).x;
//#if FROM_32
    return bitcast<f32>(x[at]);
//#else
    let bits = (x[at >> 1u] >> ((at & 1u) * 16u)) & 0xffffu;
//#if FROM_16
    return from_half(bits);
//#else
    return bitcast<f32>(bits << 16u);
//#endif
//#endif
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let pair = group_index(group, groups) * 64u + lane;
    let i = pair * 2u;
    if (i >= p.len) { return; }
    let a = load(i);
    let b = load(min(i + 1u, p.len - 1u));
//#if TO_32
    out[i] = bitcast<u32>(a);
    if (i + 1u < p.len) { out[i + 1u] = bitcast<u32>(b); }
//#else
//#if TO_16
    out[pair] = to_half(a) | (to_half(b) << 16u);
//#else
    out[pair] = to_bfloat(a) | (to_bfloat(b) << 16u);
//#endif
//#endif
}
//#use "lib/half"
