// dequantize: out[i] = scales[i / block] * x[i], for 8-bit integers x, four per word.
// INTEGERS: out[i] = x[i].
// x is packed. Each invocation reads one word and writes one vec4.

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

fn invocation(w: u32) {
    let word = x[w];
    let values = vec4<i32>(
        unpack_int8(word, 0u),
        unpack_int8(word, 1u),
        unpack_int8(word, 2u),
        unpack_int8(word, 3u),
    );
//#if INTEGERS
    out[w] = values;
//#else
    let i = w * 4u;
    var block = i / p.block;
    var end = (block + 1u) * p.block;
    var scale = vec4<f32>();
//#repeat K 4
    // Past the last element the last block continues.
    if (i + K == end && i + K < p.len) {
        block += 1u;
        end += p.block;
    }
    scale[K] = scales[block];
//#end
    out[w] = scale * vec4<f32>(values);
//#endif
}
//#include "lib/invocation"
//#use "lib/int8"
