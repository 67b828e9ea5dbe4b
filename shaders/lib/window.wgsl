// Sizes, strides and dilations of a window that moves over an input, along depth, height and width.
struct Window {
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
    pad0: u32,
}
