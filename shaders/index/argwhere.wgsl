// argwhere: out[count[i] - 1] = the coordinates of element i, for each i whose x is not zero; count[i] is how many up to and
// with i are not. All packed; coordinates are RANK numbers each.
//#include "lib/grid"

struct Params {
    len: u32,
    rank: u32,
    pad0: u32,
    pad1: u32,
    shape: array<vec4<u32>, 3>,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
@group(0) @binding(auto) var<storage, read> count: array<i32>;
@group(0) @binding(auto) var<storage, read_write> out: array<i32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
    if (x[i] == 0u) { return; }
    let row = u32(count[i] - 1) * p.rank;
    var rest = i;
    for (var axis = p.rank; axis > 0u; axis--) {
        let size = p.shape[(axis - 1u) >> 2u][(axis - 1u) & 3u];
        out[row + axis - 1u] = i32(rest % size);
        rest /= size;
    }
}
