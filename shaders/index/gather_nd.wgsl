// gather_nd: out[n, s] = x[place(n) * slice + s], where the place of row n of the indices [n, k] is in the first k
// axes of x. An index outside of its axis is clamped to it: nothing outside of the tensor is ever read.
// PLACES: writes the places themselves, -1 where an index is outside of its axis, for writing there.
//#include "lib/grid"

alias E = f32;

struct Params {
    len: u32,
    // Indices per row, and elements per place.
    depth: u32,
    slice: u32,
    pad0: u32,
    // The sizes of the first axes of x.
    shape: array<vec4<u32>, 3>,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> index: array<i32>;
//#if !PLACES
@group(0) @binding(auto) var<storage, read> x: array<E>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
    let row = i / p.slice;
    var place = 0u;
    var inside = true;
    for (var d = 0u; d < p.depth; d++) {
        let size = i32(p.shape[d >> 2u][d & 3u]);
        let k = index[row * p.depth + d];
        inside = inside && k >= 0 && k < size;
        place = place * u32(size) + u32(clamp(k, 0, size - 1));
    }
//#if PLACES
    out[i] = select(-1, E(place), inside);
//#else
    out[i] = x[place * p.slice + i % p.slice];
//#endif
}
