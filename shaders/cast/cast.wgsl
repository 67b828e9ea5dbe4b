// cast: out[i] = x[i], where x or out has 16-bit floats, two per word. Rounds to nearest, ties to even.
// x, and out if it is f32, are addressed through their strides. An out of 16 bits is contiguous.
// FROM_F32, FROM_F16 or FROM_BF16: the type of x. TO_F32, TO_F16 or TO_BF16: the type of out.
// Each invocation computes two neighbours, so that no two invocations store to the same word.
//#include "lib/walk"

struct Params {
    // Pairs of elements.
    count: u32,
    // Elements.
    len: u32,
    // The first word of an out of 16 bits.
    start: u32,
    pad: u32,
    // The offset of each element in x (x) and out (y).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
@group(0) @binding(auto) var<storage, read_write> out: array<u32>;

// Element i of x.
//#if FROM_F32
fn load(i: u32) -> f32 {
    return bitcast<f32>(x[locate(i).x]);
}
//#else
fn load(i: u32) -> f32 {
    let offset = locate(i).x;
    let bits = (x[offset >> 1u] >> ((offset & 1u) * 16u)) & 0xffffu;
//#if FROM_F16
    return f16_to_f32(bits);
//#else
    return bitcast<f32>(bits << 16u);
//#endif
}
//#endif

fn invocation(pair: u32) {
    let i = pair * 2u;
    let a = load(i);
    let b = load(min(i + 1u, p.len - 1u));
//#if TO_F32
    out[locate(i).y] = bitcast<u32>(a);
    if (i + 1u < p.len) { out[locate(i + 1u).y] = bitcast<u32>(b); }
//#endif
//#if TO_F16
    out[p.start + pair] = f32_to_f16(a) | (f32_to_f16(b) << 16u);
//#endif
//#if TO_BF16
    out[p.start + pair] = f32_to_bf16(a) | (f32_to_bf16(b) << 16u);
//#endif
}
//#include "lib/invocation"
//#use "lib/half"
