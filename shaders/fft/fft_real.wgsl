// fft_real: between the spectrum of a line of 2 * half real numbers and that of the same numbers taken for half as many complex ones,
// z[j] = x[2 j] + i x[2 j + 1]. With E and O the spectra of the even and of the odd numbers, and W = e^(-2 pi i / (2 half)):
//   Z[k] = E[k] + i O[k],   X[k] = E[k] + W^k O[k],   both E and O conjugate-even.
// Default: X from Z, in its real and imaginary parts. INVERSE: Z from X, divided by half, for an inverse transform that does not
// divide; what X says of the imaginary parts of its first and last elements, which are real, is passed over.
//#include "lib/grid"

struct Params {
    count: u32,
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

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.count) { return; }
//#if INVERSE
    let k = i & (p.half - 1u);
    let start = (i >> p.half_bits) * (p.half + 1u);
    var a = vec2<f32>(re[start + k], im[start + k]);
    // The conjugate of the element as far from the end.
    let end = start + p.half - k;
    var b = vec2<f32>(re[end], -im[end]);
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
    // Z repeats after `half` elements.
    let a = z[start + (k & (p.half - 1u))];
    let b = z[start + ((p.half - k) & (p.half - 1u))] * vec2<f32>(1.0, -1.0);
    let w = unit_root(2u * k, p.half_bits);
    // -i (a - b)
    let odd = vec2<f32>(a.y - b.y, b.x - a.x);
    re[i] = 0.5 * (a.x + b.x + w.x * odd.x - w.y * odd.y);
    im[i] = 0.5 * (a.y + b.y + w.x * odd.y + w.y * odd.x);
//#endif
}
//#use "lib/math"
