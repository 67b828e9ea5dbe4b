// conv: out[n, o, h, w] = bias[o] + sum over i, j, c of x[n, h*stride + i*dilation, .., c] * weight[i, j, c, o]
// for a padded x with the channels last, as a product of [nhw, ijc] and [ijc, o] whose left side is never written out. One
// product per group. With VOLUME there is a depth before each height.
//#include "lib/grid"
//#include "lib/conv"

@group(0) @binding(auto) var<uniform> p: Params;
//#if QUADS
@group(0) @binding(auto) var<storage, read> a: array<Four>;
@group(0) @binding(auto) var<storage, read> b: array<Four>;
//#else
@group(0) @binding(auto) var<storage, read> a: array<f32>;
@group(0) @binding(auto) var<storage, read> b: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

var<private> group_id: u32;

fn begin(batch: u32) {
    group_id = batch;
}

// The window of an output pixel.
fn row_at(row: u32) -> u32 {
    return window_row(row / p.window.out_w) + row % p.window.out_w * p.window.stride_w * p.pixel + group_id * p.in_c;
}

fn a_outer(tap: u32) -> u32 {
    return tap_at(tap);
}

fn col_at(col: u32) -> u32 {
    return group_id * p.gemm.k * p.gemm.b_step + col;
}

fn b_outer(tap: u32) -> u32 {
    return tap * p.in_c * p.gemm.b_step;
}

fn out_row(batch: u32, row: u32) -> u32 {
    return (row / p.out_len * p.groups + batch) * p.gemm.n * p.out_len + row % p.out_len;
}

fn out_col(split: u32, col: u32) -> u32 {
    return split * p.images * p.groups * p.gemm.n * p.out_len + col * p.out_len;
}

fn bias_of_col(col: u32) -> f32 {
    if (p.has_bias == 0u) { return 0.0; }
    return bias[group_id * p.gemm.n + col];
}

//#include "lib/gemm"
