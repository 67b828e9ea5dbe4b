// conv: out[n, o, h, w] = bias[o] + sum over i, j, c of
//   x[n, h*stride + i*dilation, w*stride + j*dilation, c] * weight[i, j, c, o],
// for the channels c and o of each group. x is padded, channels last. weight is [groups, i, j, c, o], and
// out is [splits, n, groups, o, h, w]; both are packed.
// Implicit GEMM: the product of [nhw, ijc] and [ijc, o], whose left side is never stored, for each group.
// VOLUME: a depth precedes each height. lib/gemm lists the other flags.
// Each workgroup computes one tile of one split of one group.
// Rounds: those of lib/gemm_direct: the steps of k of a split.
//#include "lib/conv"

@group(0) @binding(auto) var<uniform> p: Params;

// The group that this workgroup computes.
var<private> conv_group: u32;

fn begin(batch: u32) {
    conv_group = batch;
}

// The window of output pixel `row`, the row-major index of (n, h, w).
fn a_row_offset(row: u32) -> u32 {
    let window = row % p.window.out_w * p.window.stride_w * p.pixel_stride;
    return window_row_offset(row / p.window.out_w) + window + conv_group * p.in_channels;
}

// The runs of k are the taps, their steps the channels.
fn a_run_offset(tap: u32) -> u32 {
    return tap_offset(tap);
}

fn b_col_offset(col: u32) -> u32 {
    return conv_group * p.gemm.k * p.gemm.b_step + col;
}

fn b_run_offset(tap: u32) -> u32 {
    return tap * p.in_channels * p.gemm.b_step;
}

fn out_row_offset(batch: u32, row: u32) -> u32 {
    let image = row / p.out_pixels;
    return (image * p.groups + batch) * p.gemm.n * p.out_pixels + row % p.out_pixels;
}

fn out_col_offset(split: u32, col: u32) -> u32 {
    return split * p.images * p.groups * p.gemm.n * p.out_pixels + col * p.out_pixels;
}

fn bias_at(col: u32) -> f32 {
    if (p.has_bias == 0u) { return 0.0; }
    return bias[conv_group * p.gemm.n + col];
}

//#include "lib/gemm_direct"
