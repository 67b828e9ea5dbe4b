// fft: one pass of a complex Fourier transform of lines of a power of two of elements, in Stockham's order:
//   out[q + s (R j + m)] = W^(m j) * sum over r of e^(-2 pi i r m / R) * x[q + s (j + r n / R)],
// with W = e^(-2 pi i / n), for all q < s, j < n / R and m < R. s is the product of the radices of the
// previous passes, n = line length / s, and R is the radix: 4 (RADIX_4), or 2 for a last pass over pairs,
// where W is 1. After the last pass the elements are in natural order.
// `direction` is 1, or -1 for the inverse, which is not divided by the line length.
// (C. Van Loan, Computational Frameworks for the Fast Fourier Transform, 1992, section 1.7.)
// Each invocation computes one butterfly.
struct Params {
    // Butterflies of all lines.
    count: u32,
    // log2 of the butterflies of a line, and of s. Shifts are faster than divisions.
    line_bits: u32,
    stride_bits: u32,
    direction: f32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<vec2<f32>>;
@group(0) @binding(auto) var<storage, read_write> out: array<vec2<f32>>;

fn complex_mul(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

//#if RADIX_4
const RADIX: u32 = 4u;
//#else
const RADIX: u32 = 2u;
//#endif

fn invocation(i: u32) {
    let s = 1u << p.stride_bits;
    let butterflies = 1u << p.line_bits;
    // In its line: q + s j, and q.
    let at = i & (butterflies - 1u);
    let q = i & (s - 1u);
    let start = (i - at) * RADIX;
    let to = start + (at - q) * RADIX + q;
    let a = x[start + at];
    let b = x[start + at + butterflies];
//#if RADIX_4
    let c = x[start + at + 2u * butterflies];
    let d = x[start + at + 3u * butterflies];
    let root = unit_root(at >> p.stride_bits, p.line_bits - p.stride_bits);
    let w = vec2<f32>(root.x, root.y * p.direction);
    let ww = complex_mul(w, w);
    // -i (b - d), or i (b - d) for the inverse.
    let rotated = p.direction * vec2<f32>(b.y - d.y, d.x - b.x);
    out[to] = a + c + (b + d);
    out[to + s] = complex_mul(w, a - c + rotated);
    out[to + 2u * s] = complex_mul(ww, a + c - (b + d));
    out[to + 3u * s] = complex_mul(complex_mul(ww, w), a - c - rotated);
//#else
    out[to] = a + b;
    out[to + s] = a - b;
//#endif
}
//#include "lib/invocation"
//#use "lib/math"
