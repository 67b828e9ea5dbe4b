// copy: out[i] = x[i]. Each invocation copies 16 bytes.
//#include "lib/grid"

struct Params {
    // Number of vec4s.
    count: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = group_index(group, groups) * 256u + local_index;
    if i < p.count {
        out[i] = x[i];
    }
}
