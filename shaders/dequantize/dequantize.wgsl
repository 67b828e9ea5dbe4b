// dequantize: out[i] = scales[i / block] * x[i], where x has integers of BITS bits, VALUES in a word.
// x is read through its strides, which count integers. out is packed.
// INTEGERS: out[i] = x[i].
// Each invocation computes one element.
//#include "lib/walk"

// The element type of out: f32, or i32 with INTEGERS.
alias O = f32;

// Bits of an integer, and integers in a word.
const BITS: u32 = 8u;
const VALUES: u32 = 4u;

struct Params {
    // Elements.
    count: u32,
    // Elements of a block.
    block: u32,
    pad0: u32,
    pad1: u32,
    // The offset of each element in x (x), in integers.
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
    let value = unpack_int(x[offset / VALUES], offset % VALUES);
//#if INTEGERS
    out[i] = value;
//#else
    out[i] = scales[i / p.block] * f32(value);
//#endif
}
//#include "lib/invocation"
//#use "lib/packed_int"
