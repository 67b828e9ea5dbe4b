// quantize_scales: out[b] = 2 * maximum / range and reciprocals[b] = 1 / out[b], where maximum is the largest
// magnitude in block b of x, without NaN. A scale that is not a normal number becomes the smallest one.
// All are packed.
// GIVEN: out[b] = x[b], where x has the scales.
// MAXIMA: out[b] = the largest magnitude of every `step`-th element of x from b on. There are no reciprocals.
// This is the first launch if all of x is one block.
// Each invocation computes one element of out.
// Rounds: block / step.

struct Params {
    // Elements of out.
    count: u32,
    // Elements of x.
    len: u32,
    // Elements of a block.
    block: u32,
    // Distance between the elements that an invocation reads.
    step: u32,
    // The difference between the largest and the smallest integer.
    range: f32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#if !MAXIMA
@group(0) @binding(auto) var<storage, read_write> reciprocals: array<f32>;

// The biased exponent of a float.
fn exponent(bits: u32) -> u32 {
    return (bits >> 23u) & 255u;
}

// The significand of a normal float, with its leading one.
fn significand(bits: u32) -> u32 {
    return (bits & 0x007fffffu) | 0x00800000u;
}

// a / b, rounded to nearest, for a normal b. WGSL allows an error of 2.5 units in the last place, which would
// change integers. Results too small for a normal number become zero.
fn quotient(a: f32, b: f32) -> f32 {
    let x = bitcast<u32>(a);
    let y = bitcast<u32>(b);
    let sign = (x ^ y) & 0x80000000u;
    if (exponent(x) == 255u) { return a; }
    var e = i32(exponent(x)) - i32(exponent(y)) + 127;
    let divisor = significand(y);
    var remainder = significand(x);
    if (remainder < divisor) {
        remainder <<= 1u;
        e -= 1;
    }
    if (exponent(x) == 0u || e <= 0) { return bitcast<f32>(sign); }
    // The first bit is one. The other 23 follow 8, 8 and 7 at a time, so that the shifted remainder fits.
    remainder -= divisor;
    var q = 1u;
    for (var round = 0u; round < 3u; round++) {
        let bits = select(8u, 7u, round == 2u);
        remainder <<= bits;
        let digits = remainder / divisor;
        remainder -= digits * divisor;
        q = (q << bits) | digits;
    }
    if (remainder * 2u > divisor || (remainder * 2u == divisor && (q & 1u) == 1u)) { q += 1u; }
    // Addition, not `|`: rounding up to the next power of two carries into the exponent.
    return bitcast<f32>(sign | ((u32(e) << 23u) + (q - 0x00800000u)));
}

// The scale, or the smallest normal number in place of zero, subnormal numbers, infinity and NaN.
fn normal_scale(scale: f32) -> f32 {
    let e = exponent(bitcast<u32>(scale));
    return select(scale, bitcast<f32>(0x00800000u), e == 0u || e == 255u);
}

// Stores the scale of block i and its reciprocal.
fn store(i: u32, scale: f32) {
    out[i] = scale;
    reciprocals[i] = quotient(1.0, scale);
}
//#endif

//#if !GIVEN
// The largest magnitude of every `step`-th element of x in first..end; NaN is skipped.
fn max_magnitude(first: u32, end: u32) -> f32 {
    var maximum = 0.0;
    for (var k = first; k < end; k += p.step) {
        let magnitude = abs(x[k]);
        if (!is_nan(magnitude) && magnitude > maximum) { maximum = magnitude; }
    }
    return maximum;
}
//#endif

fn invocation(i: u32) {
//#if GIVEN
    store(i, normal_scale(x[i]));
//#else
//#if MAXIMA
    out[i] = max_magnitude(i, p.len);
//#else
    let first = i * p.block;
    let maximum = max_magnitude(first, min(first + p.block, p.len));
    store(i, normal_scale(quotient(2.0 * maximum, p.range)));
//#endif
//#endif
}
//#include "lib/invocation"
//#use "lib/math"
