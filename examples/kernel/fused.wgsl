// out = max(lhs * rhs + bias, 0) for each matrix of a batch. An invocation computes four rows of a column, so that it
// uses each element of rhs four times. A workgroup computes 64 rows of 16 columns.
//#include "lib/grid"

struct Params {
    m: u32,
    n: u32,
    k: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> lhs: array<f32>;
@group(0) @binding(auto) var<storage, read> rhs: array<f32>;
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(16, 16)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
) {
    let columns = (p.n + 15u) / 16u;
    let rows = (p.m + 63u) / 64u;
    let tile = group_index(group, groups);
    let batch = tile / (columns * rows);
    let row = (tile / columns % rows * 16u + local.y) * 4u;
    let col = tile % columns * 16u + local.x;
    if (row >= p.m || col >= p.n) { return; }
    // Rows past the last one repeat it, and are not stored.
    let first = (min(row + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.m - 1u)) + batch * p.m) * p.k;
    let below = batch * p.k * p.n + col;
    var sums = vec4<f32>();
    for (var i = 0u; i < p.k; i++) {
        let left = vec4<f32>(lhs[first.x + i], lhs[first.y + i], lhs[first.z + i], lhs[first.w + i]);
        sums += left * rhs[below + i * p.n];
    }
    for (var i = 0u; i < min(4u, p.m - row); i++) {
        let index = (batch * p.m + row + i) * p.n + col;
        out[index] = max(sums[i] + bias[index], 0.0);
    }
}
