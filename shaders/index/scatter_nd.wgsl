// scatter_nd: out[place[u], s] = COMBINE(itself, value[order[u], s]) for each u in order. Equal places lie side by side,
// in the order of their updates: whoever stands at the first of a place walks all of it, so that no other
// invocation writes there and the order of combination is fixed. A place below zero is skipped.
//#include "lib/grid"

alias E = f32;

struct Params {
    len: u32,
    // Updates, and elements per update.
    updates: u32,
    slice: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> place: array<i32>;
@group(0) @binding(auto) var<storage, read> order: array<i32>;
@group(0) @binding(auto) var<storage, read> value: array<E>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
    let first = i / p.slice;
    let s = i % p.slice;
    let here = place[first];
    if (here < 0) { return; }
    if (first > 0u && place[first - 1u] == here) { return; }
    let o = u32(here) * p.slice + s;
    var a = out[o];
    for (var u = first; u < p.updates && place[u] == here; u++) {
        let b = value[u32(order[u]) * p.slice + s];
        a = COMBINE;
    }
    out[o] = a;
}
//#use "lib/math"
