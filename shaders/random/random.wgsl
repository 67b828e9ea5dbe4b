// random: out[i] = sample i % 4 of block p.block + i / 4 of a random stream. out is packed.
// The generator is Philox 4x32-10 (J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011).
// It is counter-based: the samples depend only on the seed and the position. src/kernels/random.rs computes
// the same samples on the CPU.
// UNIFORM, NORMAL, BERNOULLI or INTS: the distribution.
// Each invocation computes one block.

// The element type of out.
alias O = f32;

struct Params {
    // Blocks of out.
    count: u32,
    // Elements of out; the last block may have fewer than four.
    len: u32,
    // The first block of the stream that out uses, and the seed: low word (x), high word (y).
    block: vec2<u32>,
    seed: vec2<u32>,
    // UNIFORM: the lower bound, the width of the range, and the largest float below the upper bound.
    // NORMAL: the mean (shift) and the standard deviation (scale).
    shift: f32,
    scale: f32,
    largest: f32,
    // BERNOULLI: the probability of 1, in units of 2^-31.
    threshold: u32,
    // INTS: the lower bound and the number of values.
    int_low: i32,
    int_width: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read_write> out: array<O>;

// Four random words (Philox 4x32-10).
fn philox(block: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
    var x = block;
    var key = seed;
    for (var round = 0u; round < 10u; round++) {
        let m0 = mul_extended(0xd2511f53u, x.x);
        let m1 = mul_extended(0xcd9e8d57u, x.z);
        x = vec4<u32>(m1.x ^ x.y ^ key.x, m1.y, m0.x ^ x.w ^ key.y, m0.y);
        key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return x;
}

// A float in [0, 1) from the upper 24 bits.
fn unit_float(bits: u32) -> f32 {
    return f32(bits >> 8u) * 5.9604645e-8;
}

// Two normally distributed floats from two words (G. Box and M. Muller, 1958).
fn box_muller(bits: vec2<u32>) -> vec2<f32> {
    let radius = sqrt(-2.0 * ln(1.0 - unit_float(bits.x)));
    let angle = 6.2831853 * unit_float(bits.y);
    return radius * vec2<f32>(cos_(angle), sin_(angle));
}

// Four samples from the four words of a block.
fn sample_block(bits: vec4<u32>) -> vec4<O> {
//#if UNIFORM
    let samples = vec4<f32>(
        fma(unit_float(bits.x), p.scale, p.shift),
        fma(unit_float(bits.y), p.scale, p.shift),
        fma(unit_float(bits.z), p.scale, p.shift),
        fma(unit_float(bits.w), p.scale, p.shift),
    );
    // Rounding could reach the upper bound, which is exclusive.
    return min(samples, vec4<f32>(p.largest));
//#endif
//#if NORMAL
    let samples = vec4<f32>(box_muller(bits.xy), box_muller(bits.zw));
    return samples * p.scale + p.shift;
//#endif
//#if BERNOULLI
    return vec4<O>((bits >> vec4<u32>(1u)) < vec4<u32>(p.threshold));
//#endif
//#if INTS
    // low + floor(bits * width / 2^32), in integers, so that every device gives the same result.
    return vec4<i32>(
        p.int_low + i32(mul_extended(bits.x, p.int_width).x),
        p.int_low + i32(mul_extended(bits.y, p.int_width).x),
        p.int_low + i32(mul_extended(bits.z, p.int_width).x),
        p.int_low + i32(mul_extended(bits.w, p.int_width).x),
    );
//#endif
}

fn invocation(i: u32) {
    let low = p.block.x + i;
    let high = p.block.y + u32(low < i);
    let samples = sample_block(philox(vec4<u32>(low, high, 0u, 0u), p.seed));
    for (var k = 0u; k < 4u; k++) {
        if (i * 4u + k < p.len) {
            out[i * 4u + k] = samples[k];
        }
    }
}
//#include "lib/invocation"
//#use "lib/math"
