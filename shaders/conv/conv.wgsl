// conv: out[n, o, h, w] = bias[o] + sum over i, j, c of x[n, h*stride + i*dilation, .., c] * weight[i, j, c, o],
// as a product of [nhw, ijc] and [ijc, o] whose left side is never written out (implicit GEMM). x is padded,
// channels last. One product per group. VOLUME: there is a depth before each height.
//#include "lib/conv"

@group(0) @binding(auto) var<uniform> p: Params;

var<private> conv_group: u32;

fn begin(batch: u32) {
    conv_group = batch;
}

// The window of an output pixel.
fn row_at(row: u32) -> u32 {
    let col = row % p.window.out_w * p.window.stride_w * p.pixel_stride;
    return window_row(row / p.window.out_w) + col + conv_group * p.in_channels;
}

// The runs of k are the taps.
fn a_outer(tap: u32) -> u32 {
    return tap_offset(tap);
}

fn col_at(col: u32) -> u32 {
    return conv_group * p.gemm.k * p.gemm.b_step + col;
}

fn b_outer(tap: u32) -> u32 {
    return tap * p.in_channels * p.gemm.b_step;
}

fn out_row(batch: u32, row: u32) -> u32 {
    let image = row / p.out_pixels;
    return (image * p.groups + batch) * p.gemm.n * p.out_pixels + row % p.out_pixels;
}

fn out_col(split: u32, col: u32) -> u32 {
    return split * p.images * p.groups * p.gemm.n * p.out_pixels + col * p.out_pixels;
}

fn bias_of_col(col: u32) -> f32 {
    if (p.has_bias == 0u) { return 0.0; }
    return bias[conv_group * p.gemm.n + col];
}

//#if TILED
//#include "lib/gemm_tiled"
//#else
//#include "lib/gemm_direct"
//#endif
