// dequantize_view: out[i] = scales[0] * x[i], for 8-bit integers x, four per word, read through strides that
// count bytes. INTEGERS: out[i] = x[i]. There is one scale. Each invocation computes one element.
//#include "lib/walk"

alias O = f32;

struct Params {
    // Elements.
    count: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
//#if !INTEGERS
@group(0) @binding(auto) var<storage, read> scales: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<O>;

fn invocation(i: u32) {
    let at = locate(i).x;
    let value = unpack_int8(x[at >> 2u], at & 3u);
//#if INTEGERS
    out[i] = value;
//#else
    out[i] = scales[0] * f32(value);
//#endif
}
//#include "lib/invocation"
//#use "lib/int8"
