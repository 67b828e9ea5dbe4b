// What the kernels of deformable convolutions share: the parameters, the offset and mask bindings, and the
// sample positions. A line is one tap of one offset group of one image; it has one element per output pixel.
// offset is [n, offset_groups, taps, 2, out_h, out_w], mask (MASK) is [n, offset_groups, taps, out_h, out_w].
struct Params {
    count: u32,
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
    padding_h: u32,
    padding_w: u32,
    dilation_h: u32,
    dilation_w: u32,
    // Bands of rows per plane of x, in deform_x_backward.
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

// The row and column of x that a tap samples: the tap's position in the window, plus its offset.
fn sample_position(line: u32, pixel: u32) -> vec2<f32> {
    let area = p.out_h * p.out_w;
    let t = line % (p.kernel_h * p.kernel_w);
    let row = pixel / p.out_w * p.stride_h + t / p.kernel_w * p.dilation_h;
    let col = pixel % p.out_w * p.stride_w + t % p.kernel_w * p.dilation_w;
    let at = line * 2u * area + pixel;
    let regular = vec2<f32>(f32(row) - f32(p.padding_h), f32(col) - f32(p.padding_w));
    return regular + vec2<f32>(offset[at], offset[at + area]);
}

// Whether a position has a neighbour in x. True for NaN, which the weights propagate.
fn is_inside(at: vec2<f32>) -> bool {
    return !(at.x <= -1.0 || at.x >= f32(p.in_h) || at.y <= -1.0 || at.y >= f32(p.in_w));
}

// The weights of the neighbours of a position: above left, above right, below left, below right.
fn bilinear_weights(at: vec2<f32>) -> vec4<f32> {
    let far = at - floor(at);
    let near = 1.0 - far;
    return vec4<f32>(near.x * near.y, near.x * far.y, far.x * near.y, far.x * far.y);
}

// The factor of a sample.
fn mask_at(line: u32, pixel: u32) -> f32 {
//#if MASK
    return mask[line * p.out_h * p.out_w + pixel];
//#else
    return 1.0;
//#endif
}

// The offset of the first pixel of (c, t, image) in the columns [c, t, n, pixel]. The columns are one matrix
// per group of the weight.
fn column_offset(c: u32, t: u32, image: u32) -> u32 {
    return ((c * p.kernel_h * p.kernel_w + t) * p.images + image) * p.out_h * p.out_w;
}
