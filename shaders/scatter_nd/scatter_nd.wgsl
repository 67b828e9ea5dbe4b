// scatter_nd: out[locations[u], s] = COMBINE of itself and values[order[u], s] for each update u in order.
// locations is sorted, and order has the index in values of each update. The sort is stable. All are packed.
// COMBINE: the launcher's expression of the element `a` and the update `b`.
// Negative locations are skipped.
// Each invocation has one element of one update. The invocation of the first update to a location applies all
// updates to it, in order, and the others do nothing, so that order and rounding are fixed.

// The element type.
alias E = f32;

struct Params {
    // Elements of values.
    count: u32,
    updates: u32,
    // Elements of an update and of a location.
    slice_len: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> locations: array<i32>;
@group(0) @binding(auto) var<storage, read> order: array<i32>;
@group(0) @binding(auto) var<storage, read> values: array<E>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

fn invocation(i: u32) {
    let first = i / p.slice_len;
    let s = i % p.slice_len;
    let location = locations[first];
    if (location < 0) { return; }
    if (first > 0u && locations[first - 1u] == location) { return; }
    let dst = u32(location) * p.slice_len + s;
    var a = out[dst];
    for (var u = first; u < p.updates && locations[u] == location; u++) {
        let b = values[u32(order[u]) * p.slice_len + s];
        a = COMBINE;
    }
    out[dst] = a;
}
//#include "lib/invocation"
//#use "lib/math"
