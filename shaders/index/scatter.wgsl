// scatter: out[.., index[i], ..] = COMBINE(itself, value[i]) for each i in order, along one axis.
// One invocation walks one line along the axis, so the order, and with it the rounding, is fixed.
// An index outside of the axis is skipped: nothing outside of the tensor is ever written.
//#include "lib/grid"
//#include "lib/layout"

alias E = f32;

struct Params {
    lines: u32,
    // Indices per line, and how far apart they and the values lie.
    len: u32,
    index_stride: u32,
    value_stride: u32,
    // The axis of out: its size and stride.
    size: u32,
    stride: u32,
    pad0: u32,
    pad1: u32,
    // Of out, index and value, each with the axis at zero.
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> index: array<i32>;
@group(0) @binding(auto) var<storage, read> value: array<E>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let line = group_index(group, groups) * 64u + lane;
    if (line >= p.lines) { return; }
    let at = locate(line);
    for (var i = 0u; i < p.len; i++) {
        let k = index[at.y + i * p.index_stride];
        if (k >= 0 && u32(k) < p.size) {
            let o = at.x + u32(k) * p.stride;
            let a = out[o];
            let b = value[at.z + i * p.value_stride];
            out[o] = COMBINE;
        }
    }
}
