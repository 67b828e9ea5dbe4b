// scatter_nd: out[locations[u], s] = COMBINE(itself, values[order[u], s]) for each u in order.
// locations is sorted (stable); order holds the original index of each update. The invocation that holds the
// first update to a location applies all updates to it, in order. No other invocation writes there, so the
// rounding is fixed. Negative locations are skipped.

alias E = f32;

struct Params {
    // Elements of values.
    count: u32,
    updates: u32,
    // Elements of an update.
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
    let to = u32(location) * p.slice_len + s;
    var a = out[to];
    for (var u = first; u < p.updates && locations[u] == location; u++) {
        let b = values[u32(order[u]) * p.slice_len + s];
        a = COMBINE;
    }
    out[to] = a;
}
//#include "lib/invocation"
//#use "lib/math"
