// What the kernels of depthwise convolutions share: the sizes, and the mapping from the padded input to x.
//#include "lib/window"

struct Params {
    count: u32,
    images: u32,
    // Channels of the output; each channel of the input has `multiplier` of them.
    channels: u32,
    multiplier: u32,
    window: Window,
    // Position of the first pixel of x in the padded input, and the distance between its pixels there.
    start_d: u32,
    start_h: u32,
    start_w: u32,
    has_bias: u32,
    step_d: u32,
    step_h: u32,
    step_w: u32,
    rows_per_split: u32,
}

// Rows that one invocation computes: the components of a vector.
const ROWS: u32 = 4u;
const OUTSIDE: u32 = 0xffffffffu;

// The index in x of a position relative to x's first pixel. A position before it wraps and is too large.
fn source(position: u32, step: u32, size: u32) -> u32 {
//#if SPREAD
    let index = position / step;
    return select(OUTSIDE, index, index < size && index * step == position);
//#else
    return select(OUTSIDE, position, position < size);
//#endif
}
