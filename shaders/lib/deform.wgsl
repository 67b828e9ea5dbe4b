// What the kernels of a deformable convolution share: the sizes, and where the taps sample. A line is a tap of an
// offset group of an image; it has an element for each output pixel.
struct Params {
    // Invocations that have work.
    len: u32,
    images: u32,
    channels: u32,
    // Groups of channels with offsets of their own.
    offset_groups: u32,
    in_h: u32,
    in_w: u32,
    out_h: u32,
    out_w: u32,
    kernel_h: u32,
    kernel_w: u32,
    stride_h: u32,
    stride_w: u32,
    pad_h: u32,
    pad_w: u32,
    dilation_h: u32,
    dilation_w: u32,
    // Bands of rows that a plane of x is cut into, by the gradient of x.
    bands: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> offset: array<f32>;
//#if MASK
@group(0) @binding(auto) var<storage, read> mask: array<f32>;
//#endif

// The row and column of x that a tap samples: its place in the window, and its offset.
fn position(line: u32, pixel: u32) -> vec2<f32> {
    let area = p.out_h * p.out_w;
    let t = line % (p.kernel_h * p.kernel_w);
    let row = pixel / p.out_w * p.stride_h + t / p.kernel_w * p.dilation_h;
    let col = pixel % p.out_w * p.stride_w + t % p.kernel_w * p.dilation_w;
    let at = line * 2u * area + pixel;
    return vec2<f32>(f32(row) - f32(p.pad_h), f32(col) - f32(p.pad_w)) + vec2<f32>(offset[at], offset[at + area]);
}

// Whether a position has a neighbour in x.
fn is_inside(at: vec2<f32>) -> bool {
    return !(at.x <= -1.0 || at.x >= f32(p.in_h) || at.y <= -1.0 || at.y >= f32(p.in_w));
}

// The shares of a position's neighbours: those above, left and right, then those below.
fn shares(at: vec2<f32>) -> vec4<f32> {
    let past = at - floor(at);
    let rest = 1.0 - past;
    return vec4<f32>(rest.x * rest.y, rest.x * past.y, past.x * rest.y, past.x * past.y);
}

// What a sample is multiplied by.
fn mask_at(line: u32, pixel: u32) -> f32 {
//#if MASK
    return mask[line * p.out_h * p.out_w + pixel];
//#else
    return 1.0;
//#endif
}

// Where the columns have a tap of a channel. They are [c, t, n, pixel]: a matrix for each group of the weight.
fn column(c: u32, t: u32, image: u32) -> u32 {
    return ((c * p.kernel_h * p.kernel_w + t) * p.images + image) * p.out_h * p.out_w;
}
