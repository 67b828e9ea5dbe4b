// The parameters and offsets that the kernels of a convolution share. The input x is
// [n, in_d, in_h, in_w, groups * in_channels], padded with zeros, so that every tap is inside.
// The including shader must bind `p: Params` and include lib/gemm_direct.
// VOLUME: in_d may be larger than 1. Otherwise every depth is 1.
//#include "lib/window"

struct Params {
    gemm: Gemm,
    images: u32,
    groups: u32,
    // Input channels of a group.
    in_channels: u32,
    // Distance between neighbouring pixels of x: the channels of all groups.
    pixel_stride: u32,
    // Output pixels of an image.
    out_pixels: u32,
    has_bias: u32,
    pad0: u32,
    pad1: u32,
    window: Window,
}

// The offset in x of the first window of a row of output pixels. `row` is the row-major index of (n, d, h).
fn window_row_offset(row: u32) -> u32 {
    let out_plane = row / p.window.out_h;
    let in_row = row % p.window.out_h * p.window.stride_h;
//#if VOLUME
    let depth = out_plane % p.window.out_d * p.window.stride_d;
    let in_plane = out_plane / p.window.out_d * p.window.in_d + depth;
//#else
    let in_plane = out_plane;
//#endif
    return (in_plane * p.window.in_h + in_row) * p.window.in_w * p.pixel_stride;
}

// The offset of a tap from the start of its window.
fn tap_offset(tap: u32) -> u32 {
    let kernel_row = tap / p.window.kernel_w;
    var rows = kernel_row % p.window.kernel_h * p.window.dilation_h;
//#if VOLUME
    rows += kernel_row / p.window.kernel_h * p.window.dilation_d * p.window.in_h;
//#endif
    return (rows * p.window.in_w + tap % p.window.kernel_w * p.window.dilation_w) * p.pixel_stride;
}
