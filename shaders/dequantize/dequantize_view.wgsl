// dequantize_view: out[i] = scales[0] * x[i], where x has 8-bit integers, four per word.
// x is read through its strides, which count bytes. out is packed. There is one scale.
// INTEGERS: out[i] = x[i].
// Each invocation computes one element.
//#include "lib/walk"

// The element type of out: f32, or i32 with INTEGERS.
alias O = f32;

struct Params {
    // Elements.
    count: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
    // The offset of each element in x (x), in bytes.
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
//#if !INTEGERS
@group(0) @binding(auto) var<storage, read> scales: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<O>;

fn invocation(i: u32) {
    let offset = locate(i).x;
    let value = unpack_int8(x[offset >> 2u], offset & 3u);
//#if INTEGERS
    out[i] = value;
//#else
    out[i] = scales[0] * f32(value);
//#endif
}
//#include "lib/invocation"
//#use "lib/int8"
