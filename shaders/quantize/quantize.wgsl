// quantize: out[i] = x[i] * reciprocals[i / block] as an 8-bit integer, four per word. Rounds half
// away from zero and clamps to the range of the format; NaN becomes zero.
// INTEGERS: x holds the integers, which are only packed.
// x and out are packed. Each invocation writes one word.

struct Params {
    // Words of out.
    count: u32,
    // Elements.
    len: u32,
    // Elements of a block.
    block: u32,
    // The smallest integer of the format.
    low: f32,
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
fn nearest_integer(value: f32) -> i32 {
    if (is_nan(value)) { return 0; }
    let x = clamp(value, p.low, 127.0);
    let whole = trunc(x);
    return i32(whole) + select(0, i32(sign(x)), abs(x - whole) >= 0.5);
}
//#endif

fn invocation(w: u32) {
    let i = w * 4u;
    let values = x[w];
    // The last word may be partly filled.
    let filled = min(p.len - i, 4u);
    var word = 0u;
//#if INTEGERS
//#repeat K 4
    if (K < filled) { word |= pack_int8(values[K], K); }
//#end
//#else
    var block = i / p.block;
    var end = (block + 1u) * p.block;
//#repeat K 4
    if (K < filled) {
        if (i + K == end) {
            block += 1u;
            end += p.block;
        }
        word |= pack_int8(nearest_integer(values[K] * reciprocals[block]), K);
    }
//#end
//#endif
    out[w] = word;
}
//#include "lib/invocation"
//#use "lib/math"
//#use "lib/int8"
