// sort_scatter: one pass of a stable radix sort of each line of x by a digit of the keys: the eight bits from
// p.shift on. out and out_indices receive the elements and their original indices. All are [lines, line_len],
// packed. ends[line, digit, tile] is the number of elements of the line with a smaller digit, or with the same
// digit up to the end of the tile. lib/sort_key lists the flags.
// FIRST: the elements are in their original order.
// Each workgroup moves one tile.
// Rounds: the elements of a tile for each invocation, for each digit.

struct Params {
    // Tiles of all lines, and of a line.
    count: u32,
    tiles: u32,
    // Elements of a line.
    line_len: u32,
    shift: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
@group(0) @binding(auto) var<storage, read> ends: array<u32>;
//#if !FIRST
@group(0) @binding(auto) var<storage, read> x_indices: array<i32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<u32>;
@group(0) @binding(auto) var<storage, read_write> out_indices: array<i32>;

//#include "lib/grid"
//#include "lib/radix"

// Where the elements of the tile with a digit begin in the sorted tile.
var<workgroup> digit_starts: array<u32, 256>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let index = group_index(group, groups);
    if (index >= p.count) { return; }
    let line = index / p.tiles;
    let tile = index % p.tiles;
    let line_start = line * p.line_len;
    let first = tile * TILE;
    let tile_len = min(TILE, p.line_len - first);
    for (var k = local_index; k < TILE; k += WORKGROUP_SIZE) {
        // Entries past the end sort last: they come after all others of the greatest digit.
        var key = 255u;
        if (k < tile_len) { key = (key_of(x[line_start + first + k]) >> p.shift) & 255u; }
        keys[k] = key;
        places[k] = k;
    }
    workgroupBarrier();
    for (var shift = 0u; shift < 8u; shift += 4u) {
        sort_by_digit(shift, local_index);
    }
    for (var k = local_index; k < TILE; k += WORKGROUP_SIZE) {
        if (k == 0u || keys[max(k, 1u) - 1u] != keys[k]) { digit_starts[keys[k]] = k; }
    }
    workgroupBarrier();
    for (var k = local_index; k < tile_len; k += WORKGROUP_SIZE) {
        // The elements of earlier digits, and of this digit in earlier tiles.
        let entry = keys[k] * p.tiles + tile;
        var start = 0u;
        if (entry > 0u) { start = ends[line * 256u * p.tiles + entry - 1u]; }
        let position = start + k - digit_starts[keys[k]];
        // A program may write a buffer that it has lent between the count and this kernel.
        if (position >= p.line_len) { continue; }
        let dst = line_start + position;
        let src = first + places[k];
        out[dst] = x[line_start + src];
//#if FIRST
        out_indices[dst] = i32(src);
//#else
        out_indices[dst] = x_indices[line_start + src];
//#endif
    }
}
