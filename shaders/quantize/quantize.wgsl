// quantize: out[i] = x[i] * reciprocals[i / block], where out has 8-bit integers, four per word.
// x and out are packed. Rounds to nearest, ties away from zero, and clamps; NaN becomes zero.
// INTEGERS: out[i] = x[i], where x has the integers, one per word.
// Each invocation computes the four elements of one word.

struct Params {
    // Words of out.
    count: u32,
    // Elements.
    len: u32,
    // Elements of a block.
    block: u32,
    // The smallest integer of the format; the largest is 127.
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
    let clamped = clamp(value, p.low, 127.0);
    let whole = trunc(clamped);
    return i32(whole) + select(0, i32(sign(clamped)), abs(clamped - whole) >= 0.5);
}
//#endif

fn invocation(word_index: u32) {
    let first = word_index * 4u;
    let values = x[word_index];
    // Elements of this word; the last one may have fewer than four.
    let elements = min(p.len - first, 4u);
    var word = 0u;
//#if INTEGERS
//#repeat K 4
    if (K < elements) { word |= pack_int8(values[K], K); }
//#end
//#else
    var block = first / p.block;
    var end = (block + 1u) * p.block;
//#repeat K 4
    if (K < elements) {
        if (first + K == end) {
            block += 1u;
            end += p.block;
        }
        word |= pack_int8(nearest_integer(values[K] * reciprocals[block]), K);
    }
//#end
//#endif
    out[word_index] = word;
}
//#include "lib/invocation"
//#use "lib/math"
//#use "lib/int8"
