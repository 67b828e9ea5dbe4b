// The parameters of depthwise convolutions, and the mapping from the padded input to x, which is
// [n, channels / multiplier, in_d, in_h, in_w]. The including shader must bind `p: Params`.
// SPREAD: the steps may be larger than 1.
//#include "lib/window"

struct Params {
    // Invocations.
    count: u32,
    images: u32,
    // Output channels, and output channels per input channel.
    channels: u32,
    multiplier: u32,
    window: Window,
    // start: position of the first pixel of x in the padded input. step: distance between its pixels there.
    start_d: u32,
    start_h: u32,
    start_w: u32,
    has_bias: u32,
    step_d: u32,
    step_h: u32,
    step_w: u32,
    // Output rows (n, d, h) that a split of depthwise_weight_backward sums.
    rows_per_split: u32,
}

// Rows that one invocation computes: the components of a vector.
const ROWS: u32 = 4u;
const OUTSIDE: u32 = 0xffffffffu;

// The index in x, along one axis, of a position relative to x's first pixel; OUTSIDE if there is no pixel. A
// position before the first pixel wraps and is too large.
fn x_index(position: u32, step: u32, size: u32) -> u32 {
//#if SPREAD
    let index = position / step;
    return select(OUTSIDE, index, index < size && index * step == position);
//#else
    return select(OUTSIDE, position, position < size);
//#endif
}
