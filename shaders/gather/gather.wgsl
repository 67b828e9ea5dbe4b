// gather: out[i] = x[.., indices[i], ..], with the index along one axis and the other coordinates as in i.
// An index outside the axis is clamped to it, so that every read is in bounds.
//#include "lib/walk"

alias E = f32;

struct Params {
    // Elements of out.
    count: u32,
    // The gathered axis of x: its size and stride.
    size: u32,
    stride: u32,
    pad0: u32,
    // out (x), indices (y), and x with the gathered axis at zero (z).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> indices: array<i32>;
@group(0) @binding(auto) var<storage, read> x: array<E>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

fn invocation(i: u32) {
    let at = locate(i);
    let index = u32(clamp(indices[at.y], 0, i32(p.size) - 1));
    out[at.x] = x[at.z + index * p.stride];
}
//#include "lib/invocation"
