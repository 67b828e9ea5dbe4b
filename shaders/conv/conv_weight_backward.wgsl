// conv_weight_backward: the gradient of conv with respect to its weight,
// out[o, i, j, c] = sum over n, h, w of grad[n, o, h, w] * x[n, h*stride + i*dilation, .., c],
// as a product of [o, nhw] and [nhw, ijc]. x is padded, channels last. One product per group. VOLUME: there
// is a depth before each height.
//#include "lib/conv"

@group(0) @binding(auto) var<uniform> p: Params;

var<private> conv_group: u32;

fn begin(batch: u32) {
    conv_group = batch;
}

fn row_at(row: u32) -> u32 {
    return (conv_group * p.gemm.m + row) * p.out_pixels;
}

// The runs of k are the rows of the output, counted through heights, depths and images.
fn a_outer(row: u32) -> u32 {
    let rows = p.window.out_d * p.window.out_h;
    let image = row / rows;
    return image * p.groups * p.gemm.m * p.out_pixels + row % rows * p.window.out_w;
}

// A channel under a tap.
fn col_at(col: u32) -> u32 {
    let channel = conv_group * p.in_channels + col % p.in_channels;
    return tap_offset(col / p.in_channels) + channel;
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

//#if TILED
//#include "lib/gemm_tiled"
//#else
//#include "lib/gemm_direct"
//#endif
