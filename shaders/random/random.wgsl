// random: out[i] from the counter-based generator Philox 4x32-10 (J. Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", 2011). Block b of the stream gives elements 4b .. 4b+3, so the numbers
// depend on the seed and the position alone, not on the device. Its twin is src/kernels/random.rs.
//#include "lib/grid"

alias O = f32;

struct Params {
    len: u32,
    // Uniform: the bits of the largest number below the upper end.
    top: u32,
    // The first block of the stream that this tensor uses.
    block: vec2<u32>,
    seed: vec2<u32>,
    // Uniform: low, width. Normal: mean, deviation. Bernoulli: the threshold's bits in s.
    s: u32,
    t: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read_write> out: array<O>;

// The high and low words of a product of two 32-bit numbers.
fn multiply(a: u32, b: u32) -> vec2<u32> {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let mid = ah * bl + (low >> 16u);
    let mid2 = al * bh + (mid & 0xffffu);
    return vec2<u32>(ah * bh + (mid >> 16u) + (mid2 >> 16u), a * b);
}

fn philox(block: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
    var x = block;
    var key = seed;
    for (var round = 0u; round < 10u; round++) {
        let m0 = multiply(0xd2511f53u, x.x);
        let m1 = multiply(0xcd9e8d57u, x.z);
        x = vec4<u32>(m1.x ^ x.y ^ key.x, m1.y, m0.x ^ x.w ^ key.y, m0.y);
        key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return x;
}

// A number in [0, 1) from the upper 24 bits.
fn unit(bits: u32) -> f32 {
    return f32(bits >> 8u) * 5.9604645e-8;
}

// Two normal numbers from two words (G. Box and M. Muller, 1958).
fn normal(bits: vec2<u32>) -> vec2<f32> {
    let radius = sqrt(-2.0 * ln(1.0 - unit(bits.x)));
    let angle = 6.2831853 * unit(bits.y);
    return radius * vec2<f32>(cos_(angle), sin_(angle));
}

fn draw(bits: vec4<u32>) -> vec4<O> {
//#if UNIFORM
    let low = bitcast<f32>(p.s);
    let width = bitcast<f32>(p.t);
    let drawn = vec4<f32>(
        fma(unit(bits.x), width, low),
        fma(unit(bits.y), width, low),
        fma(unit(bits.z), width, low),
        fma(unit(bits.w), width, low),
    );
    return min(drawn, vec4<f32>(bitcast<f32>(p.top)));
//#endif
//#if NORMAL
    let n = vec4<f32>(normal(bits.xy), normal(bits.zw));
    return n * bitcast<f32>(p.t) + bitcast<f32>(p.s);
//#endif
//#if BERNOULLI
    return vec4<O>(bits < vec4<u32>(p.s));
//#endif
//#if INTS
    // low + floor(bits * width / 2^32): every device picks the same integer.
    return vec4<i32>(
        i32(p.s + multiply(bits.x, p.t).x),
        i32(p.s + multiply(bits.y, p.t).x),
        i32(p.s + multiply(bits.z, p.t).x),
        i32(p.s + multiply(bits.w, p.t).x),
    );
//#endif
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_index(group, groups) * 64u + lane;
    let low = p.block.x + index;
    let high = p.block.y + u32(low < index);
    let values = draw(philox(vec4<u32>(low, high, 0u, 0u), p.seed));
    for (var k = 0u; k < 4u; k++) {
        if (index * 4u + k < p.len) {
            out[index * 4u + k] = values[k];
        }
    }
}
//#use "lib/math"
