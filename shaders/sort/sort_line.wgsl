// sort_line: sorts the elements of each tile of a line, and stores the first p.keep of them and their original
// indices. x is [lines, line_len], out and out_indices are [lines, tiles, keep]; all are packed. A tile with fewer
// elements is filled with the key that sorts last, and indices without a meaning. lib/sort_key lists the flags.
// FIRST: the elements are in their original order. Otherwise x_indices are their original indices.
// Each workgroup sorts one tile.
// Rounds: the elements of a tile for each invocation, for each digit.

struct Params {
    // Tiles of all lines, and of a line.
    count: u32,
    tiles: u32,
    // Elements of a line.
    line_len: u32,
    // Elements of a tile that are stored.
    keep: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
//#if !FIRST
@group(0) @binding(auto) var<storage, read> x_indices: array<i32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<u32>;
@group(0) @binding(auto) var<storage, read_write> out_indices: array<i32>;

//#include "lib/grid"
//#include "lib/radix"

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let index = group_index(group, groups);
    if (index >= p.count) { return; }
    let first = index % p.tiles * TILE;
    let start = index / p.tiles * p.line_len + first;
    let tile_len = min(TILE, p.line_len - first);
    for (var k = local_index; k < TILE; k += WORKGROUP_SIZE) {
        // Entries past the end sort last: they come after all others of the greatest key.
        var key = 0xffffffffu;
        if (k < tile_len) { key = key_of(x[start + k]); }
        keys[k] = key;
        places[k] = k;
    }
    workgroupBarrier();
    for (var shift = 0u; shift < 32u; shift += 4u) {
        sort_by_digit(shift, local_index);
    }
    for (var k = local_index; k < p.keep; k += WORKGROUP_SIZE) {
        let place = min(places[k], tile_len - 1u);
        out[index * p.keep + k] = element_of(keys[k]);
//#if FIRST
        out_indices[index * p.keep + k] = i32(first + place);
//#else
        out_indices[index * p.keep + k] = x_indices[start + place];
//#endif
    }
}
