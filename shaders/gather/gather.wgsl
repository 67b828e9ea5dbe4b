// gather: out[.., i, ..] = x[.., indices[.., i, ..], ..], along one axis. out has the shape of indices.
// Every tensor is accessed through its strides.
// An index outside the axis is reported, and clamped to it, so that every read is in bounds.
// Each invocation computes one element.
//#include "lib/walk"

// The element type.
alias E = f32;

struct Params {
    // Elements of out.
    count: u32,
    // The gathered axis of x: its size and stride.
    size: u32,
    stride: u32,
    pad0: u32,
    // The offset of each element in out (x), in indices (y), and in x with index zero along the axis (z).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> indices: array<i32>;
@group(0) @binding(auto) var<storage, read> x: array<E>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;
//#include "lib/report"

fn invocation(i: u32) {
    let offsets = locate(i);
    let index = indices[offsets.y];
    if (u32(index) >= p.size) { report_index(0u, index); }
    out[offsets.x] = x[offsets.z + u32(clamp(index, 0, i32(p.size) - 1)) * p.stride];
}
//#include "lib/invocation"
