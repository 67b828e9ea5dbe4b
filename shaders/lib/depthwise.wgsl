// What the kernels of depthwise convolutions share: the sizes, and where an element of the ground lies in x.
//#include "lib/window"

struct Params {
    // Results to make: bundles of rows of the forward kernel, weights of all parts of the other.
    count: u32,
    images: u32,
    // Of the output; so many of them share a channel of the input.
    channels: u32,
    multiplier: u32,
    window: Window,
    // Where x's first element lies on the ground, and how far apart the others do.
    start_d: u32,
    start_h: u32,
    start_w: u32,
    has_bias: u32,
    step_d: u32,
    step_h: u32,
    step_w: u32,
    rows_per_part: u32,
}

// The rows that one invocation makes.
const LINES: u32 = 4u;
const_assert LINES == 4u; // the lanes of a vector
const OUTSIDE: u32 = 0xffffffffu;

// The element of x at a distance from x's first element on the ground; before it the distance wraps and is too large.
fn source(distance: u32, step: u32, size: u32) -> u32 {
//#if SPREAD
    let place = distance / step;
    return select(OUTSIDE, place, place < size && place * step == distance);
//#else
    return select(OUTSIDE, distance, distance < size);
//#endif
}
