// The parameters of deformable convolutions, the bindings of offset and mask, and the sample positions.
// offset is [n, offset_groups, taps, 2, out_h, out_w]: row offsets, then column offsets.
// MASK: there is a mask, [n, offset_groups, taps, out_h, out_w]. Otherwise every factor is 1.
// `tap_plane` is the row-major index of (n, offset group, tap), `pixel` that of an output pixel.
struct Params {
    // Invocations.
    count: u32,
    images: u32,
    channels: u32,
    // Groups of channels that share offsets.
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
    // The samples that a launch of deform_x_backward goes over: tap * out_h * out_w + pixel.
    first_sample: u32,
    end_sample: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> offset: array<f32>;
//#if MASK
@group(0) @binding(auto) var<storage, read> mask: array<f32>;
//#endif

// The (row, column) of x that a tap samples: the tap's position in the window, plus its offset.
fn sample_position(tap_plane: u32, pixel: u32) -> vec2<f32> {
    let area = p.out_h * p.out_w;
    let t = tap_plane % (p.kernel_h * p.kernel_w);
    let row = pixel / p.out_w * p.stride_h + t / p.kernel_w * p.dilation_h;
    let col = pixel % p.out_w * p.stride_w + t % p.kernel_w * p.dilation_w;
    let index = tap_plane * 2u * area + pixel;
    let regular = vec2<f32>(f32(row) - f32(p.padding_h), f32(col) - f32(p.padding_w));
    return regular + vec2<f32>(offset[index], offset[index + area]);
}

// Whether a position has a neighbour in x. True for NaN, which the weights propagate.
fn is_inside(position: vec2<f32>) -> bool {
    return is_nan(position.x) || is_nan(position.y)
        || (position.x > -1.0 && position.x < f32(p.in_h)
            && position.y > -1.0 && position.y < f32(p.in_w));
}

// The weights of the neighbours of a position: above left, above right, below left, below right.
fn bilinear_weights(position: vec2<f32>) -> vec4<f32> {
    let high = position - floor(position);
    let low = 1.0 - high;
    return vec4<f32>(low.x * low.y, low.x * high.y, high.x * low.y, high.x * high.y);
}

// The factor of a sample.
fn mask_at(tap_plane: u32, pixel: u32) -> f32 {
//#if MASK
    return mask[tap_plane * p.out_h * p.out_w + pixel];
//#else
    return 1.0;
//#endif
}

// The offset of the first pixel of channel c and tap t of an image in the columns, which are
// [channels, taps, n, out_h * out_w]: one matrix for each group of the convolution.
fn column_offset(c: u32, t: u32, image: u32) -> u32 {
    return ((c * p.kernel_h * p.kernel_w + t) * p.images + image) * p.out_h * p.out_w;
}

// The sample of one tap of one output pixel, for all channels that share its offset.
struct Sample {
    tap_plane: u32,
    pixel: u32,
    tap: u32,
    image: u32,
    // The range of the channels.
    first_channel: u32,
    end_channel: u32,
    position: vec2<f32>,
}

// Sample i of offset, in row-major order.
fn sample_of(i: u32) -> Sample {
    let area = p.out_h * p.out_w;
    let taps = p.kernel_h * p.kernel_w;
    let group_channels = p.channels / p.offset_groups;
    var s: Sample;
    s.tap_plane = i / area;
    s.pixel = i % area;
    s.tap = s.tap_plane % taps;
    s.image = s.tap_plane / taps / p.offset_groups;
    s.first_channel = s.tap_plane / taps % p.offset_groups * group_channels;
    s.end_channel = s.first_channel + group_channels;
    s.position = sample_position(s.tap_plane, s.pixel);
    return s;
}
//#use "lib/math"
