// out = max(lhs * rhs + bias, 0) for each matrix of a batch. A workgroup computes 16 x 16 elements, from tiles of
// 16 x 16 in workgroup memory.
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

const TILE: u32 = 16u;

var<workgroup> lhs_tile: array<f32, 256>;
var<workgroup> rhs_tile: array<f32, 256>;

@compute @workgroup_size(16, 16)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
) {
    let columns = (p.n + TILE - 1u) / TILE;
    let rows = (p.m + TILE - 1u) / TILE;
    let tile = group_index(group, groups);
    let batch = tile / (columns * rows);
    let row = tile / columns % rows * TILE + local.y;
    let col = tile % columns * TILE + local.x;
    let at = local.y * TILE + local.x;
    var sum = 0.0;
    for (var first = 0u; first < p.k; first += TILE) {
        let lhs_col = first + local.x;
        let rhs_row = first + local.y;
        // Elements past the edges are zero.
        let lhs_element = lhs[(batch * p.m + row) * p.k + lhs_col];
        let rhs_element = rhs[(batch * p.k + rhs_row) * p.n + col];
        lhs_tile[at] = select(0.0, lhs_element, row < p.m && lhs_col < p.k);
        rhs_tile[at] = select(0.0, rhs_element, rhs_row < p.k && col < p.n);
        workgroupBarrier();
        for (var i = 0u; i < TILE; i++) {
            sum += lhs_tile[local.y * TILE + i] * rhs_tile[i * TILE + local.x];
        }
        workgroupBarrier();
    }
    if (row < p.m && col < p.n) {
        let index = (batch * p.m + row) * p.n + col;
        out[index] = max(sum + bias[index], 0.0);
    }
}
