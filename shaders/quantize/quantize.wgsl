// quantize: out[i] = x[i] * reciprocals[i / block], where out has integers of BITS bits, VALUES in a word.
// x and out are packed. Rounds to nearest, ties away from zero, and clamps; NaN becomes zero.
// INTEGERS: out[i] = x[i], where x has the integers, one per word.
// Each invocation computes the integers of one word.

// Bits of an integer, and integers in a word.
const BITS: u32 = 8u;
const VALUES: u32 = 4u;
// Vec4s of the elements of a word.
const VEC4S: u32 = 1u;

struct Params {
    // Words of out.
    count: u32,
    // Elements.
    len: u32,
    // Elements of a block.
    block: u32,
    // The smallest integer of the format.
    low: f32,
    // The largest one.
    high: f32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
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
    let clamped = clamp(value, p.low, p.high);
    let whole = trunc(clamped);
    return i32(whole) + select(0, i32(sign(clamped)), abs(clamped - whole) >= 0.5);
}
//#endif

fn invocation(word_index: u32) {
    let first = word_index * VALUES;
    var word = 0u;
//#if !INTEGERS
    var block = first / p.block;
    var end = (block + 1u) * p.block;
//#endif
//#repeat V VEC4S
    if (first + V * 4u < p.len) {
        let values = x[word_index * VEC4S + V];
//#repeat K 4
        // The last word may have fewer integers.
        if (first + V * 4u + K < p.len) {
//#if INTEGERS
            word |= pack_int(values[K], V * 4u + K);
//#else
            if (first + V * 4u + K == end) {
                block += 1u;
                end += p.block;
            }
            word |= pack_int(nearest_integer(values[K] * reciprocals[block]), V * 4u + K);
//#endif
        }
//#end
    }
//#end
    out[word_index] = word;
}
//#include "lib/invocation"
//#use "lib/math"
//#use "lib/packed_int"
