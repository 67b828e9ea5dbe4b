// transpose: out[.., j, i] = x[.., i, j] for words of 32 bits, where j is innermost in x's memory and i in out's.
// Each invocation turns a block of 4 x 4: four quads come in, four go out. A workgroup turns 32 x 32, so that both its loads and its
// stores touch whole lines of the cache. Both axes are multiples of four long, and everything starts at such multiples.
//#include "lib/grid"
//#include "lib/layout"
//#include "lib/quad"

struct Params {
    // Blocks along i and j, tiles of 8 x 8 blocks along them, and tiles in all.
    blocks_i: u32,
    blocks_j: u32,
    tiles_i: u32,
    tiles_j: u32,
    tiles: u32,
    // Distances between neighbours along i in x, and along j in out.
    x_step: u32,
    out_step: u32,
    pad0: u32,
    // Where each matrix starts in out (x) and x (y).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<Quad>;
@group(0) @binding(auto) var<storage, read_write> out: array<Quad>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tile = group_index(group, groups);
    if (tile >= p.tiles) { return; }
    let i = tile % p.tiles_i * 8u + lane / 8u;
    let j = tile / p.tiles_i % p.tiles_j * 8u + lane % 8u;
    if (i >= p.blocks_i || j >= p.blocks_j) { return; }
    let starts = locate(tile / p.tiles_i / p.tiles_j);
    let at = (starts.y + i * 4u * p.x_step + j * 4u) >> 2u;
    let to = (starts.x + j * 4u * p.out_step + i * 4u) >> 2u;
    let x_step = p.x_step >> 2u;
    let out_step = p.out_step >> 2u;
    let a = words_of(x[at]);
    let b = words_of(x[at + x_step]);
    let c = words_of(x[at + 2u * x_step]);
    let d = words_of(x[at + 3u * x_step]);
    out[to] = quad_of(vec4<u32>(a.x, b.x, c.x, d.x));
    out[to + out_step] = quad_of(vec4<u32>(a.y, b.y, c.y, d.y));
    out[to + 2u * out_step] = quad_of(vec4<u32>(a.z, b.z, c.z, d.z));
    out[to + 3u * out_step] = quad_of(vec4<u32>(a.w, b.w, c.w, d.w));
}
