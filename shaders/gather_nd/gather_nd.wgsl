// gather_nd: out[n, s] = x[location(n), s]. Row n of indices [n, indexed_axes] has one index into each of the
// first axes of x. Its location is the row-major index over these axes. indices, x and out are packed.
// An index outside its axis is reported, and clamped to it, so that every read is in bounds.
// LOCATIONS: out[n] = location(n), or -1 if an index is outside its axis. Each line of `line_len` rows has
// locations of its own, which follow those of the line before.
// Each invocation computes one element.
// Rounds: the indexed axes.

// The element type; i32 with LOCATIONS.
alias E = f32;

struct Params {
    // Elements of out.
    count: u32,
    // Axes of x that a row of indices addresses.
    indexed_axes: u32,
    // Elements of x at a location; 1 with LOCATIONS.
    slice_len: u32,
    // Rows of a line, with LOCATIONS.
    line_len: u32,
    // Sizes of the indexed axes.
    shape: array<vec4<u32>, 3>,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> indices: array<i32>;
//#if !LOCATIONS
@group(0) @binding(auto) var<storage, read> x: array<E>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<E>;
//#include "lib/report"

fn invocation(i: u32) {
    let row = i / p.slice_len;
//#if LOCATIONS
    var location = row / p.line_len;
//#else
    var location = 0u;
//#endif
    var in_bounds = true;
    for (var axis = 0u; axis < p.indexed_axes; axis++) {
        let size = i32(p.shape[axis >> 2u][axis & 3u]);
        let index = indices[row * p.indexed_axes + axis];
        if (index < 0 || index >= size) {
            report_index(axis, index);
            in_bounds = false;
        }
        location = location * u32(size) + u32(clamp(index, 0, size - 1));
    }
//#if LOCATIONS
    out[i] = select(-1, E(location), in_bounds);
//#else
    out[i] = x[location * p.slice_len + i % p.slice_len];
//#endif
}
//#include "lib/invocation"
