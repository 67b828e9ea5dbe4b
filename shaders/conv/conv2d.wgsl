// conv2d: out[n, o, h, w] = bias[o] + sum over c, i, j of x[n, c, h*stride + i*dilation - padding, ..] * weight[o, c, i, j],
// as a product of [o, cij] and [cij, nhw] whose right side is never written out. One product per group.
//#include "lib/grid"
//#include "lib/conv"

@group(0) @binding(auto) var<uniform> p: Params;
//#if A_QUAD
@group(0) @binding(auto) var<storage, read> weight: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read> weight: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read> x: array<f32>;
//#if BIAS
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
//#endif
//#if OUT_QUAD
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#endif

var<private> group_id: u32;

fn begin(batch: u32) {
    group_id = batch;
}

fn a_index(row: u32, k: u32) -> u32 {
    return (group_id * p.gemm.m + row) * p.gemm.k + k;
}

//#if A_QUAD
fn a_quad(row: u32, k: u32) -> vec4<f32> {
    return weight[a_index(row, k) >> 2u];
}
//#else
fn a_at(row: u32, k: u32) -> f32 {
    return weight[a_index(row, k)];
}
//#endif

// An output pixel: its image, and where the kernel's first tap falls on the input.
struct Column {
    base: u32,
    y: u32,
    x: u32,
}

fn column(col: u32) -> Column {
    let n = col / (p.out_h * p.out_w);
    let y = col / p.out_w % p.out_h;
    let base = (n * p.groups + group_id) * p.in_c * p.in_h * p.in_w;
    return Column(base, y * p.stride_h - p.pad_h, col % p.out_w * p.stride_w - p.pad_w);
}

// A tap of the kernel: its channel, and how far it lies from the first.
struct Inner {
    base: u32,
    y: u32,
    x: u32,
}

fn inner(k: u32) -> Inner {
    let channel = k / (p.kernel_h * p.kernel_w);
    let i = k / p.kernel_w % p.kernel_h;
    return Inner(channel * p.in_h * p.in_w, i * p.dilation_h, k % p.kernel_w * p.dilation_w);
}

fn b_at(r: Inner, c: Column) -> f32 {
    // Left of or above the image, the coordinate wraps and is too large as well.
    let y = c.y + r.y;
    let xx = c.x + r.x;
    let inside = y < p.in_h && xx < p.in_w;
    return select(0.0, x[select(0u, c.base + r.base + y * p.in_w + xx, inside)], inside);
}

fn out_row(batch: u32, row: u32) -> u32 {
    return (batch * p.gemm.m + row) * p.out_h * p.out_w;
}

fn out_col(split: u32, col: u32) -> u32 {
    let area = p.out_h * p.out_w;
    return (split * p.images + col / area) * p.groups * p.gemm.m * area + col % area;
}

fn bias_of_row(row: u32) -> f32 {
//#if BIAS
    return bias[group_id * p.gemm.m + row];
//#else
    return 0.0;
//#endif
}

fn bias_of_col(col: u32) -> f32 {
    return 0.0;
}

//#include "lib/gemm"
