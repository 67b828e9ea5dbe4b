// fft: out[q + s (R j + m)] = W^(m j) * sum over r of e^(-2 pi i r m / R) * x[q + s (j + r n / R)],
// with W = e^(-2 pi i / n), for all q < s, j < n / R and m < R: one pass of a complex Fourier transform of
// lines, whose length is a power of two, in Stockham's order. x and out are packed.
// s is the product of the radices of the previous passes, n = line length / s, and R is the radix. After the
// last pass the elements are in natural order.
// (C. Van Loan, Computational Frameworks for the Fast Fourier Transform, 1992, section 1.7.)
// RADIX_4: R is 4. Otherwise R is 2, for a last pass over pairs, where W^(m j) is 1.
// Each invocation computes one butterfly: the elements m < R for one q and j.

struct Params {
    // Butterflies of all lines.
    count: u32,
    // log2 of the butterflies of a line, and of s. Shifts are faster than divisions.
    line_bits: u32,
    stride_bits: u32,
    // 1, or -1 for the inverse, which is not divided by the line length.
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
    // The index of the butterfly in its line, q + s j.
    let index = i & (butterflies - 1u);
    let q = i & (s - 1u);
    let line_start = (i - index) * RADIX;
    let src = line_start + index;
    let dst = line_start + (index - q) * RADIX + q;
    let a = x[src];
    let b = x[src + butterflies];
//#if RADIX_4
    let c = x[src + 2u * butterflies];
    let d = x[src + 3u * butterflies];
    let root = unit_root(index >> p.stride_bits, p.line_bits - p.stride_bits);
    let w = vec2<f32>(root.x, root.y * p.direction);
    let ww = complex_mul(w, w);
    // -i (b - d), or i (b - d) for the inverse.
    let rotated = p.direction * vec2<f32>(b.y - d.y, d.x - b.x);
    out[dst] = a + c + (b + d);
    out[dst + s] = complex_mul(w, a - c + rotated);
    out[dst + 2u * s] = complex_mul(ww, a + c - (b + d));
    out[dst + 3u * s] = complex_mul(complex_mul(ww, w), a - c - rotated);
//#else
    out[dst] = a + b;
    out[dst + s] = a - b;
//#endif
}
//#include "lib/invocation"
//#use "lib/math"
