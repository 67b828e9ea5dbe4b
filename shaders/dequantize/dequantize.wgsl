// dequantize: out[i] = scales[i / block] * x[i], where x has 8-bit integers, four per word.
// x and out are packed.
// INTEGERS: out[i] = x[i].
// Each invocation computes the four elements of one word.

// The element type of out: f32, or i32 with INTEGERS.
alias O = f32;

struct Params {
    // Words of x.
    count: u32,
    // Elements.
    len: u32,
    // Elements of a block.
    block: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
//#if !INTEGERS
@group(0) @binding(auto) var<storage, read> scales: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<O>>;

fn invocation(word_index: u32) {
    let word = x[word_index];
    let values = vec4<i32>(
        unpack_int8(word, 0u),
        unpack_int8(word, 1u),
        unpack_int8(word, 2u),
        unpack_int8(word, 3u),
    );
//#if INTEGERS
    out[word_index] = values;
//#else
    let first = word_index * 4u;
    var block = first / p.block;
    var end = (block + 1u) * p.block;
    var scale = vec4<f32>();
//#repeat K 4
    // Past the last element, the scale of the last block is used.
    if (first + K == end && first + K < p.len) {
        block += 1u;
        end += p.block;
    }
    scale[K] = scales[block];
//#end
    out[word_index] = scale * vec4<f32>(values);
//#endif
}
//#include "lib/invocation"
//#use "lib/int8"
