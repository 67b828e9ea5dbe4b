// transpose_tile: out[n, j, i] = x[n, i, j], for matrix n of a batch of 32-bit words of any size, stride and offset.
// j is contiguous in x and i in out. Both are accessed through their strides.
// Each workgroup transposes a tile of SIDE x SIDE in workgroup memory, so that neighbouring invocations load and store
// neighbouring words.
//#include "lib/grid"
//#include "lib/walk"

struct Params {
    // Sizes of a matrix, and its tiles along i and j.
    len_i: u32,
    len_j: u32,
    tiles_i: u32,
    tiles_j: u32,
    // Tiles of all matrices.
    tiles: u32,
    // Strides of x along i, and of out along j.
    x_stride: u32,
    out_stride: u32,
    pad0: u32,
    // The offset of each matrix in out (x) and x (y).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
@group(0) @binding(auto) var<storage, read_write> out: array<u32>;

const SIDE: u32 = 32u;
const WORKGROUP_SIZE: u32 = 256u;
// Rows that the invocations move at once.
const ROWS: u32 = WORKGROUP_SIZE / SIDE;

// Rows are padded, so that the words of a column are in different banks.
var<workgroup> words: array<u32, SIDE * (SIDE + 1u)>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let tile = group_index(group, groups);
    if (tile >= p.tiles) { return; }
    let i0 = tile % p.tiles_i * SIDE;
    let j0 = tile / p.tiles_i % p.tiles_j * SIDE;
    let starts = locate(tile / p.tiles_i / p.tiles_j);
    let lane = local_index % SIDE;
    for (var row = local_index / SIDE; row < SIDE; row += ROWS) {
        let i = i0 + row;
        let j = j0 + lane;
        if (i < p.len_i && j < p.len_j) { words[row * (SIDE + 1u) + lane] = x[starts.y + i * p.x_stride + j]; }
    }
    workgroupBarrier();
    for (var row = local_index / SIDE; row < SIDE; row += ROWS) {
        let j = j0 + row;
        let i = i0 + lane;
        if (i < p.len_i && j < p.len_j) { out[starts.x + j * p.out_stride + i] = words[lane * (SIDE + 1u) + row]; }
    }
}
