// The parameters that the kernels of a convolution share. Channels are per group, and the input is padded already:
// every tap falls inside of it. Without VOLUME the depth is one everywhere, and nothing is computed for it.
struct Params {
    gemm: Gemm,
    images: u32,
    groups: u32,
    in_c: u32,
    // Elements of one channel of the input and of the output.
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
    pad2: u32,
}

// Where the window of an output pixel starts, relative to its image's first channel.
fn window(pixel: u32) -> u32 {
    let row = pixel / p.out_w;
//#if VOLUME
    let in_row = row / p.out_h * p.stride_d * p.in_h + row % p.out_h * p.stride_h;
//#else
    let in_row = row * p.stride_h;
//#endif
    return in_row * p.in_w + pixel % p.out_w * p.stride_w;
}

// How far a tap lies from its window's start: k counts channels, planes, rows and columns of the kernel.
fn tap(k: u32) -> u32 {
    let row = k / p.kernel_w;
    let plane = row / p.kernel_h;
//#if VOLUME
    let in_plane = plane / p.kernel_d * p.in_d + plane % p.kernel_d * p.dilation_d;
//#else
    let in_plane = plane;
//#endif
    return (in_plane * p.in_h + row % p.kernel_h * p.dilation_h) * p.in_w + k % p.kernel_w * p.dilation_w;
}
