// scatter_nd: out[locations[u], s] = COMBINE of itself and values[order[u], s] for each update u.
// locations is sorted, and order has the index in values of each update. The sort is stable. All are packed.
// COMBINE: the launcher's expression of the element `a` and the update `b`. It is associative.
// Negative locations are skipped.
// Updates are combined in levels, so that no invocation combines more than FAN_IN of them, however many have
// the same location. Level n divides the updates into blocks of `stride * FAN_IN`, with stride FAN_IN^n. The
// first update of a location in a block takes the combined values of those at the multiples of the stride that
// follow in the block. The order of combination is fixed, so results repeat bit for bit.
// FIRST: the first level, which reads values. LAST: the last level, which writes out. Other levels read and
// write partial[u, s].
// Each invocation has one element of one update.
// Rounds: FAN_IN.

const FAN_IN: u32 = 64u;
// The element type.
alias E = f32;

struct Params {
    // Elements of values.
    count: u32,
    updates: u32,
    // Elements of an update and of a location.
    slice_len: u32,
    stride: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> locations: array<i32>;
//#if FIRST
@group(0) @binding(auto) var<storage, read> order: array<i32>;
@group(0) @binding(auto) var<storage, read> values: array<E>;
//#endif
//#if LAST
//#if !FIRST
@group(0) @binding(auto) var<storage, read> partial: array<E>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<E>;
//#else
@group(0) @binding(auto) var<storage, read_write> partial: array<E>;
//#endif

fn update(u: u32, s: u32) -> E {
//#if FIRST
    return values[u32(order[u]) * p.slice_len + s];
//#else
    return partial[u * p.slice_len + s];
//#endif
}

fn combined(a: E, b: E) -> E {
    return COMBINE;
}

fn invocation(i: u32) {
    let first = i / p.slice_len;
    let s = i % p.slice_len;
    let location = locations[first];
    if (location < 0) { return; }
    let block = p.stride * FAN_IN;
    let begins_block = first % block == 0u;
    let begins_location = first == 0u || locations[max(first, 1u) - 1u] != location;
//#if LAST
    if (!begins_location) { return; }
//#else
    if (!begins_location && !begins_block) { return; }
//#endif
    // The last level has one block.
    let end = min((first / block + 1u) * block, p.updates);
    var total = update(first, s);
    for (var u = (first / p.stride + 1u) * p.stride; u < end && locations[u] == location; u += p.stride) {
        total = combined(total, update(u, s));
    }
//#if LAST
    let dst = u32(location) * p.slice_len + s;
    out[dst] = combined(out[dst], total);
//#else
    partial[i] = total;
//#endif
}
//#include "lib/invocation"
//#use "lib/math"
