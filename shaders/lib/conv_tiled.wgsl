// What the tiled kernels of a convolution share: b is a tensor [n, groups, channels, d, h, w] that is read where it
// is, without copies that are padded or in another order. Elements outside are zeros.
// The including shader must bind `p: Params`.
// TRANSPOSED: b has the size of the convolution's output. VOLUME: depths may be larger than 1.
//#include "lib/window"

struct Params {
    gemm: Gemm,
    groups: u32,
    // Channels of a group in b.
    channels: u32,
    has_bias: u32,
    padding_d: u32,
    padding_h: u32,
    padding_w: u32,
    // The distance in the kernel between taps that reach the same element: 1 unless the convolution is transposed.
    period_d: u32,
    period_h: u32,
    period_w: u32,
    // The distance in b between these taps.
    tap_d: i32,
    tap_h: i32,
    tap_w: i32,
    // Phases of a transposed convolution along each axis: at most one per element.
    phases_d: u32,
    phases_h: u32,
    phases_w: u32,
    pad0: u32,
    window: Window,
}

// The sizes of b.
fn b_size() -> vec3<u32> {
    let w = p.window;
//#if TRANSPOSED
    return vec3<u32>(w.out_d, w.out_h, w.out_w);
//#else
    return vec3<u32>(w.in_d, w.in_h, w.in_w);
//#endif
}

// The elements of a channel of b.
fn b_plane() -> u32 {
    let size = b_size();
    return size.x * size.y * size.z;
}

// A position in b, which need not be inside.
struct Place {
    offset: u32,
    d: i32,
    h: i32,
    w: i32,
}

// A position at a distance from `place`.
fn shifted(place: Place, d: i32, h: i32, w: i32) -> Place {
    let size = vec3<i32>(b_size());
//#if VOLUME
    let rows = d * size.y + h;
//#else
    let rows = h;
//#endif
    return Place(place.offset + bitcast<u32>(rows * size.z + w), place.d + d, place.h + h, place.w + w);
}

fn is_inside(place: Place) -> bool {
    let size = b_size();
    let in_plane = bitcast<u32>(place.h) < size.y && bitcast<u32>(place.w) < size.z;
//#if VOLUME
    return in_plane && bitcast<u32>(place.d) < size.x;
//#else
    return in_plane;
//#endif
}
