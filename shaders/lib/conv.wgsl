// The parameters that the kernels of a convolution share. Channels are per group, and the input is padded already:
// every tap falls inside of it.
struct Params {
    gemm: Gemm,
    images: u32,
    groups: u32,
    in_c: u32,
    in_h: u32,
    in_w: u32,
    out_h: u32,
    out_w: u32,
    kernel_h: u32,
    kernel_w: u32,
    stride_h: u32,
    stride_w: u32,
    dilation_h: u32,
    dilation_w: u32,
    has_bias: u32,
    pad0: u32,
    pad1: u32,
}

// Where the window of an output pixel starts, relative to its image's first channel.
fn window(pixel: u32) -> u32 {
    return pixel / p.out_w * p.stride_h * p.in_w + pixel % p.out_w * p.stride_w;
}

// How far a tap lies from its window's start: k counts channels, rows and columns of the kernel.
fn tap(k: u32) -> u32 {
    let channel = k / (p.kernel_h * p.kernel_w);
    let i = k / p.kernel_w % p.kernel_h;
    return (channel * p.in_h + i * p.dilation_h) * p.in_w + k % p.kernel_w * p.dilation_w;
}
