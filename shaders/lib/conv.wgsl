// The parameters that the kernels of a convolution share. The input is [n, d, h, w, c], padded with zeros,
// so that every tap is inside. Channels are per group. Without VOLUME every depth is 1.
//#include "lib/window"

struct Params {
    gemm: Gemm,
    images: u32,
    groups: u32,
    in_channels: u32,
    // Distance between neighbouring pixels of the input: the channels of all groups.
    pixel_stride: u32,
    // Pixels of one image of the output.
    out_pixels: u32,
    has_bias: u32,
    pad0: u32,
    pad1: u32,
    window: Window,
}

// Where the windows of a row of output pixels start; rows are counted through heights, depths and images.
fn window_row(row: u32) -> u32 {
    let line = row / p.window.out_h;
    let height = row % p.window.out_h * p.window.stride_h;
//#if VOLUME
    let depth = line % p.window.out_d * p.window.stride_d;
    let plane = line / p.window.out_d * p.window.in_d + depth;
//#else
    let plane = line;
//#endif
    return (plane * p.window.in_h + height) * p.window.in_w * p.pixel_stride;
}

// The distance of a tap from the start of its window.
fn tap_offset(tap: u32) -> u32 {
    let row = tap / p.window.kernel_w;
    var height = row % p.window.kernel_h * p.window.dilation_h;
//#if VOLUME
    height += row / p.window.kernel_h * p.window.dilation_d * p.window.in_h;
//#endif
    return (height * p.window.in_w + tap % p.window.kernel_w * p.window.dilation_w) * p.pixel_stride;
}
