// transpose: out[n, j, i] = x[n, i, j], for matrix n of a batch of 32-bit words.
// j is contiguous in x and i in out. Both are accessed through their strides. Sizes, other strides and
// offsets are multiples of four.
// Each invocation transposes a block of 4 x 4: four vec4 loads, four vec4 stores. Each workgroup transposes a
// tile of 8 x 8 blocks, so that loads and stores cover whole cache lines.
//#include "lib/grid"
//#include "lib/walk"
//#include "lib/vec4"

struct Params {
    // Blocks and tiles of a matrix, along i and j.
    blocks_i: u32,
    blocks_j: u32,
    tiles_i: u32,
    tiles_j: u32,
    // Tiles of all matrices.
    tiles: u32,
    // Strides of x along i, and of out along j. They are divided by four, so negative ones must not wrap.
    x_stride: i32,
    out_stride: i32,
    pad0: u32,
    // The offset of each matrix in out (x) and x (y).
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
    let x_stride = u32(p.x_stride >> 2u);
    let out_stride = u32(p.out_stride >> 2u);
    let src = (starts.y >> 2u) + i * 4u * x_stride + j;
    let dst = (starts.x >> 2u) + j * 4u * out_stride + i;
    let a = to_words(x[src]);
    let b = to_words(x[src + x_stride]);
    let c = to_words(x[src + 2u * x_stride]);
    let d = to_words(x[src + 3u * x_stride]);
    out[dst] = from_words(vec4<u32>(a.x, b.x, c.x, d.x));
    out[dst + out_stride] = from_words(vec4<u32>(a.y, b.y, c.y, d.y));
    out[dst + 2u * out_stride] = from_words(vec4<u32>(a.z, b.z, c.z, d.z));
    out[dst + 3u * out_stride] = from_words(vec4<u32>(a.w, b.w, c.w, d.w));
}
