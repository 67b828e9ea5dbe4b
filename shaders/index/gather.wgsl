// gather: out[i] = x[.., index[i], ..], the index along one axis, the rest as in i.
// An index outside of the axis is clamped to it: nothing outside of the tensor is ever read.
//#include "lib/grid"
//#include "lib/layout"

alias E = f32;

struct Params {
    len: u32,
    // The axis: its size and its stride in x.
    size: u32,
    stride: u32,
    pad0: u32,
    // Of out, index, and x with the axis at zero.
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> index: array<i32>;
@group(0) @binding(auto) var<storage, read> x: array<E>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
    let at = locate(i);
    let k = u32(clamp(index[at.y], 0, i32(p.size) - 1));
    out[at.x] = x[at.z + k * p.stride];
}
