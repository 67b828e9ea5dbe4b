// out = the least (or, with DILATE, the largest) element of a channel under a window, [height, width, channels]. The
// elements are f32, with INTEGER i32, with BOOLEAN booleans. BORDER says what is outside of the image: 0 a constant,
// 1 the nearest element, 2 the mirrored image, 3 the image mirrored at its outermost elements.
//#include "lib/invocation"

struct Params {
    count: u32,
    height: u32,
    width: u32,
    channels: u32,
    window: vec2<u32>,
    anchor: vec2<i32>,
}

//#if INTEGER
alias E = i32;
//#else
//#if BOOLEAN
alias E = u32;
//#else
alias E = f32;
//#endif
//#endif

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> image: array<E>;
@group(0) @binding(auto) var<storage, read> window: array<u32>;
@group(0) @binding(auto) var<storage, read> border: array<E>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

const BORDER: u32 = 0u;

// The index that stands for one outside of the image; -1 for the constant.
fn inside(index: i32, len: i32) -> i32 {
    if (index >= 0 && index < len) { return index; }
    if (BORDER == 0u) { return -1; }
    if (BORDER == 1u || len == 1) { return clamp(index, 0, len - 1); }
    let period = select(2 * len, 2 * len - 2, BORDER == 3u);
    let at = ((index % period) + period) % period;
    return select(period - at - select(1, 0, BORDER == 3u), at, at < len);
}

fn invocation(i: u32) {
    let channel = i % p.channels;
    let x = i32(i / p.channels % p.width);
    let y = i32(i / p.channels / p.width);
    var found = false;
    // Only used once an element is found.
    var best = border[channel];
    for (var row = 0u; row < p.window.y; row++) {
        let from_y = inside(y + i32(row) - p.anchor.y, i32(p.height));
        for (var col = 0u; col < p.window.x; col++) {
            if (window[row * p.window.x + col] == 0u) { continue; }
            let from_x = inside(x + i32(col) - p.anchor.x, i32(p.width));
            var element = border[channel];
            if (from_x >= 0 && from_y >= 0) {
                element = image[(u32(from_y) * p.width + u32(from_x)) * p.channels + channel];
            }
//#if DILATE
            let better = element > best;
//#else
            let better = element < best;
//#endif
            if (better || !found) { best = element; }
            found = true;
        }
    }
    out[i] = best;
}
