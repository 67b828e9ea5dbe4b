// conv_weight_backward: out[o, i, j, c] = sum over n, h, w of
//   grad[n, o, h, w] * x[n, h*stride + i*dilation, w*stride + j*dilation, c],
// for the channels c and o of each group: the gradient of conv with respect to its weight.
// x is padded, channels last. grad is [n, groups, o, h, w], and out is [splits, groups, o, i, j, c]; both are
// packed.
// Implicit GEMM: the product of [o, nhw] and [nhw, ijc], whose right side is never stored, for each group.
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

fn a_row_offset(row: u32) -> u32 {
    return (conv_group * p.gemm.m + row) * p.out_pixels;
}

// The runs of k are the rows of grad, by row-major index of (n, d, h). Their steps are the pixels of a row.
fn a_run_offset(row: u32) -> u32 {
    let rows = p.window.out_d * p.window.out_h;
    let image = row / rows;
    return image * p.groups * p.gemm.m * p.out_pixels + row % rows * p.window.out_w;
}

// Column `col` of the product is the row-major index of (tap, channel).
fn b_col_offset(col: u32) -> u32 {
    let channel = conv_group * p.in_channels + col % p.in_channels;
    return tap_offset(col / p.in_channels) + channel;
}

fn b_run_offset(row: u32) -> u32 {
    return window_row_offset(row);
}

fn out_row_offset(batch: u32, row: u32) -> u32 {
    return (batch * p.gemm.m + row) * p.gemm.n;
}

fn out_col_offset(split: u32, col: u32) -> u32 {
    return split * p.groups * p.gemm.m * p.gemm.n + col;
}

fn bias_at(col: u32) -> f32 {
    return 0.0;
}

//#include "lib/gemm_direct"
