// scales: what one step of an integer stands for, for each block of x, and its reciprocal: the block's
// largest magnitude, NaN left out, is SPAN / 2 steps. GIVEN: x holds the scales, which are only made usable.
// PARTS: the largest magnitude of every `blocks`-th element instead, for a block that is a whole tensor.
// One invocation walks one block.
//#include "lib/grid"

struct Params {
    blocks: u32,
    // Of x.
    len: u32,
    // Elements in a block, and from one to the next.
    block: u32,
    step: u32,
    // How many steps lie between the least and the greatest integer.
    span: f32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#if !PARTS
@group(0) @binding(auto) var<storage, read_write> reciprocals: array<f32>;

fn exponent(bits: u32) -> u32 {
    return (bits >> 23u) & 255u;
}

fn mantissa(bits: u32) -> u32 {
    return (bits & 0x007fffffu) | 0x00800000u;
}

// a / b, rounded to nearest, for a normal b. A driver's own quotient may be a few units off, and then so would
// be the integers. A result too small for a normal number is zero.
fn quotient(a: f32, b: f32) -> f32 {
    let x = bitcast<u32>(a);
    let y = bitcast<u32>(b);
    let sign = (x ^ y) & 0x80000000u;
    if (exponent(x) == 255u) { return a; }
    var e = i32(exponent(x)) - i32(exponent(y)) + 127;
    let divisor = mantissa(y);
    var rest = mantissa(x);
    if (rest < divisor) {
        rest <<= 1u;
        e -= 1;
    }
    if (exponent(x) == 0u || e <= 0) { return bitcast<f32>(sign); }
    // The first bit is a one; 23 more follow, as many at a time as a word has room for.
    rest -= divisor;
    var q = 1u;
    for (var at = 0u; at < 3u; at++) {
        let bits = select(8u, 7u, at == 2u);
        rest <<= bits;
        let digits = rest / divisor;
        rest -= digits * divisor;
        q = (q << bits) | digits;
    }
    if (rest * 2u > divisor || (rest * 2u == divisor && (q & 1u) == 1u)) { q += 1u; }
    // Added, not or-ed: what is rounded up to the next power of two carries into the exponent.
    return bitcast<f32>(sign | ((u32(e) << 23u) + (q - 0x00800000u)));
}

// A scale that can be divided by: the smallest normal number in place of zero, infinity and NaN.
fn usable(scale: f32) -> f32 {
    let e = exponent(bitcast<u32>(scale));
    return select(scale, bitcast<f32>(0x00800000u), e == 0u || e == 255u);
}
//#endif

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.blocks) { return; }
//#if GIVEN
    let scale = usable(x[i]);
//#else
//#if PARTS
    let first = i;
    let end = p.len;
//#else
    let first = i * p.block;
    let end = min(first + p.block, p.len);
//#endif
    var most = 0.0;
    for (var k = first; k < end; k += p.step) {
        let size = abs(x[k]);
        if (!is_nan(size) && size > most) { most = size; }
    }
//#if PARTS
    out[i] = most;
//#else
    let scale = usable(quotient(2.0 * most, p.span));
//#endif
//#endif
//#if !PARTS
    out[i] = scale;
    reciprocals[i] = quotient(1.0, scale);
//#endif
}
//#use "lib/math"
