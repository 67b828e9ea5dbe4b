// cross: out = lhs x rhs, for vectors of three components that lie `step` apart. One invocation computes one vector.
//#include "lib/grid"
//#include "lib/layout"

struct Params {
    len: u32,
    out_step: u32,
    lhs_step: u32,
    rhs_step: u32,
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> lhs: array<f32>;
@group(0) @binding(auto) var<storage, read> rhs: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
    let at = locate(i);
    let a = vec3(lhs[at.y], lhs[at.y + p.lhs_step], lhs[at.y + 2u * p.lhs_step]);
    let b = vec3(rhs[at.z], rhs[at.z + p.rhs_step], rhs[at.z + 2u * p.rhs_step]);
    let c = cross(a, b);
    out[at.x] = c.x;
    out[at.x + p.out_step] = c.y;
    out[at.x + 2u * p.out_step] = c.z;
}
