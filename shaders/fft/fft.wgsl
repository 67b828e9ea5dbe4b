// fft: one pass of a complex Fourier transform of lines of `len` elements, a power of two, in Stockham's order:
//   out[q + s (R p + m)] = W^(m p) * sum over j of e^(-2 pi i j m / R) * x[q + s (p + j n / R)],  W = e^(-2 pi i / n),
// for s, the product of the radices of the passes before, n = len / s, p < n / R and q < s. After the last pass the elements are
// in their natural order. Radix R is 4 (FOUR), or 2 for a last pass over pairs, where W is 1.
// `direction` is 1, or -1 for the inverse, which is not divided by `len`. (C. Van Loan, Computational Frameworks for the Fast
// Fourier Transform, 1992, section 1.7.) One invocation computes one butterfly.
//#include "lib/grid"

struct Params {
    // Butterflies of all lines.
    count: u32,
    // The logarithms of those of one line, len / R, and of s: division is slow.
    part_bits: u32,
    stride_bits: u32,
    direction: f32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<vec2<f32>>;
@group(0) @binding(auto) var<storage, read_write> out: array<vec2<f32>>;

fn times(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

//#if FOUR
const RADIX: u32 = 4u;
//#else
const RADIX: u32 = 2u;
//#endif

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.count) { return; }
    let s = 1u << p.stride_bits;
    let part = 1u << p.part_bits;
    // q + s p, and q
    let at = i & (part - 1u);
    let q = i & (s - 1u);
    let start = (i - at) * RADIX;
    let to = start + (at - q) * RADIX + q;
    let a = x[start + at];
    let b = x[start + at + part];
//#if FOUR
    let c = x[start + at + 2u * part];
    let d = x[start + at + 3u * part];
    let root = unit_root(at >> p.stride_bits, p.part_bits - p.stride_bits);
    let w = vec2<f32>(root.x, root.y * p.direction);
    let ww = times(w, w);
    // -i (b - d), or i (b - d) backwards
    let turned = p.direction * vec2<f32>(b.y - d.y, d.x - b.x);
    out[to] = a + c + (b + d);
    out[to + s] = times(w, a - c + turned);
    out[to + 2u * s] = times(ww, a + c - (b + d));
    out[to + 3u * s] = times(times(ww, w), a - c - turned);
//#else
    out[to] = a + b;
    out[to + s] = a - b;
//#endif
}
//#use "lib/math"
