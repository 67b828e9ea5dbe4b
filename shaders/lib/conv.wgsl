// The parameters that the kernels of a convolution share. The input is [n, d, h, w, c], padded with zeros already, so that every
// tap falls inside of it; `pixel` is how far its pixels lie apart: the channels of all groups. Channels are per group.
// Without VOLUME the depth is one everywhere, and nothing is computed for it.
//#include "lib/window"

struct Params {
    gemm: Gemm,
    images: u32,
    groups: u32,
    in_c: u32,
    pixel: u32,
    // Pixels of one image of the input and of the output.
    in_len: u32,
    out_len: u32,
    has_bias: u32,
    pad: u32,
    window: Window,
}

// Where the windows of a row of output pixels start; rows count through heights, depths and images.
fn window_row(row: u32) -> u32 {
    let line = row / p.window.out_h;
    let height = row % p.window.out_h * p.window.stride_h;
//#if VOLUME
    let plane = line / p.window.out_d * p.window.in_d + line % p.window.out_d * p.window.stride_d;
//#else
    let plane = line;
//#endif
    return (plane * p.window.in_h + height) * p.window.in_w * p.pixel;
}

// How far a tap lies from its window's start.
fn tap_at(tap: u32) -> u32 {
    let row = tap / p.window.kernel_w;
    let height = row % p.window.kernel_h * p.window.dilation_h;
//#if VOLUME
    let height_in = row / p.window.kernel_h * p.window.dilation_d * p.window.in_h + height;
//#else
    let height_in = height;
//#endif
    return (height_in * p.window.in_w + tap % p.window.kernel_w * p.window.dilation_w) * p.pixel;
}
