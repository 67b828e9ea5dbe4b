// fft_real: re[k] + i im[k] = X[k] = E[k] + W^k O[k], from z[k] = Z[k] = E[k] + i O[k],
// with W = e^(-pi i / half). X is the spectrum of 2 * half real numbers x[j], stored for k <= half. Z is the
// spectrum of `half` complex numbers, x[2 j] + i x[2 j + 1]. E and O are the spectra of the even and the odd
// x[j]; they are conjugate-even. re and im are [lines, half + 1], and z is [lines, half]; all are packed.
// INVERSE: z[k] = Z[k] / half, from X. The division is here because fft does not divide. The imaginary parts
// of X[0] and X[half] are ignored: they are zero for real x.
// Each invocation computes one element.

struct Params {
    // Elements of re or, with INVERSE, of z.
    count: u32,
    // Elements of a line of z, a power of two, and log2 of that.
    half: u32,
    half_bits: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
//#if INVERSE
@group(0) @binding(auto) var<storage, read> re: array<f32>;
@group(0) @binding(auto) var<storage, read> im: array<f32>;
@group(0) @binding(auto) var<storage, read_write> z: array<vec2<f32>>;
//#else
@group(0) @binding(auto) var<storage, read> z: array<vec2<f32>>;
@group(0) @binding(auto) var<storage, read_write> re: array<f32>;
@group(0) @binding(auto) var<storage, read_write> im: array<f32>;
//#endif

fn invocation(i: u32) {
//#if INVERSE
    let k = i & (p.half - 1u);
    let start = (i >> p.half_bits) * (p.half + 1u);
    var a = vec2<f32>(re[start + k], im[start + k]);
    // The conjugate of X[half - k].
    let mirrored = start + p.half - k;
    var b = vec2<f32>(re[mirrored], -im[mirrored]);
    if (k == 0u) {
        a.y = 0.0;
        b.y = 0.0;
    }
    let even = a + b;
    let w = unit_root(2u * k, p.half_bits);
    // i conj(W^k) (a - b)
    let d = a - b;
    let odd = vec2<f32>(w.y * d.x - w.x * d.y, w.x * d.x + w.y * d.y);
    z[i] = (even + odd) * (0.5 / f32(p.half));
//#else
    let line = i / (p.half + 1u);
    let k = i - line * (p.half + 1u);
    let start = line * p.half;
    // Z[k] has the period half.
    let a = z[start + (k & (p.half - 1u))];
    let b = z[start + ((p.half - k) & (p.half - 1u))] * vec2<f32>(1.0, -1.0);
    let w = unit_root(2u * k, p.half_bits);
    // -i (a - b)
    let odd = vec2<f32>(a.y - b.y, b.x - a.x);
    re[i] = 0.5 * (a.x + b.x + w.x * odd.x - w.y * odd.y);
    im[i] = 0.5 * (a.y + b.y + w.x * odd.y + w.y * odd.x);
//#endif
}
//#include "lib/invocation"
//#use "lib/math"
