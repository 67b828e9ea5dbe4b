// transpose: out[.., j, i] = x[.., i, j] for 32-bit words, where j is contiguous in x and i in out.
// Each invocation transposes a block of 4 x 4: four vec4 loads, four vec4 stores. A workgroup transposes
// 32 x 32, so that loads and stores cover whole cache lines. Sizes, strides and offsets are multiples of four.
//#include "lib/grid"
//#include "lib/walk"
//#include "lib/vec4"

struct Params {
    // Blocks along i and j, tiles of 8 x 8 blocks along i and j, and tiles of all matrices.
    blocks_i: u32,
    blocks_j: u32,
    tiles_i: u32,
    tiles_j: u32,
    tiles: u32,
    // Strides of x along i and of out along j.
    x_stride: u32,
    out_stride: u32,
    pad0: u32,
    // Where each matrix starts, in out (x) and x (y).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<Words4>;
@group(0) @binding(auto) var<storage, read_write> out: array<Words4>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let tile = group_index(group, groups);
    if (tile >= p.tiles) { return; }
    let i = tile % p.tiles_i * 8u + local_index / 8u;
    let j = tile / p.tiles_i % p.tiles_j * 8u + local_index % 8u;
    if (i >= p.blocks_i || j >= p.blocks_j) { return; }
    let starts = locate(tile / p.tiles_i / p.tiles_j);
    let source = (starts.y + i * 4u * p.x_stride + j * 4u) >> 2u;
    let to = (starts.x + j * 4u * p.out_stride + i * 4u) >> 2u;
    let x_stride = p.x_stride >> 2u;
    let out_stride = p.out_stride >> 2u;
    let a = to_words(x[source]);
    let b = to_words(x[source + x_stride]);
    let c = to_words(x[source + 2u * x_stride]);
    let d = to_words(x[source + 3u * x_stride]);
    out[to] = from_words(vec4<u32>(a.x, b.x, c.x, d.x));
    out[to + out_stride] = from_words(vec4<u32>(a.y, b.y, c.y, d.y));
    out[to + 2u * out_stride] = from_words(vec4<u32>(a.z, b.z, c.z, d.z));
    out[to + 3u * out_stride] = from_words(vec4<u32>(a.w, b.w, c.w, d.w));
}
