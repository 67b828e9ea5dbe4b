// The parameters that the kernels of a convolution share. The input is [n, d, h, w, c], padded with zeros already, so that every
// tap falls inside of it; `pixel` is how far its pixels lie apart: the channels of all groups. Channels are per group.
// Without VOLUME the depth is one everywhere, and nothing is computed for it.
struct Params {
    gemm: Gemm,
    images: u32,
    groups: u32,
    in_c: u32,
    pixel: u32,
    // Pixels of one image of the input and of the output.
    in_len: u32,
    out_len: u32,
    in_d: u32,
    in_h: u32,
    in_w: u32,
    out_d: u32,
    out_h: u32,
    out_w: u32,
    kernel_d: u32,
    kernel_h: u32,
    kernel_w: u32,
    stride_d: u32,
    stride_h: u32,
    stride_w: u32,
    dilation_d: u32,
    dilation_h: u32,
    dilation_w: u32,
    has_bias: u32,
    pad0: u32,
    pad1: u32,
}

// Where the windows of a row of output pixels start; rows count through heights, depths and images.
fn window_row(row: u32) -> u32 {
    let line = row / p.out_h;
    let height = row % p.out_h * p.stride_h;
//#if VOLUME
    let plane = line / p.out_d * p.in_d + line % p.out_d * p.stride_d;
//#else
    let plane = line;
//#endif
    return (plane * p.in_h + height) * p.in_w * p.pixel;
}

// How far a tap lies from its window's start.
fn tap_at(tap: u32) -> u32 {
    let row = tap / p.kernel_w;
    let height = row % p.kernel_h * p.dilation_h;
//#if VOLUME
    let height_in = row / p.kernel_h * p.dilation_d * p.in_h + height;
//#else
    let height_in = height;
//#endif
    return (height_in * p.in_w + tap % p.kernel_w * p.dilation_w) * p.pixel;
}
