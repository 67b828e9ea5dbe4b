// conv_weight_backward: the gradient of conv with respect to its weight:
// out[o, i, j, c] = sum over n, h, w of grad[n, o, h, w] * x[n, h*stride + i*dilation, .., c] for a padded x with the channels last.
// As a product of [o, nhw] and [nhw, ijc]. One product per group. With VOLUME there is a depth before each height.
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
//#if OUT_QUAD
@group(0) @binding(auto) var<storage, read_write> out: array<Quad>;
//#else
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#endif

var<private> group_id: u32;

fn begin(batch: u32) {
    group_id = batch;
}

fn row_at(row: u32) -> u32 {
    return (group_id * p.gemm.m + row) * p.out_len;
}

// The runs of k are the rows of the output, which count through heights, depths and images.
fn a_outer(row: u32) -> u32 {
    let rows = p.window.out_d * p.window.out_h;
    return row / rows * p.groups * p.gemm.m * p.out_len + row % rows * p.window.out_w;
}

// A channel under a tap.
fn col_at(col: u32) -> u32 {
    return tap_at(col / p.in_c) + group_id * p.in_c + col % p.in_c;
}

fn b_outer(row: u32) -> u32 {
    return window_row(row);
}

fn out_row(batch: u32, row: u32) -> u32 {
    return (batch * p.gemm.m + row) * p.gemm.n;
}

fn out_col(split: u32, col: u32) -> u32 {
    return split * p.groups * p.gemm.m * p.gemm.n + col;
}

fn bias_of_col(col: u32) -> f32 {
    return 0.0;
}

//#include "lib/gemm"
