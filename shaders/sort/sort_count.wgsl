// sort_count: out[line, digit, tile] is the number of elements of a tile of x[line] whose key has a digit: the
// eight bits from p.shift on. x is [lines, line_len], packed. lib/sort_key lists the flags.
// Each workgroup counts one tile.
// Rounds: the elements of a tile for each invocation, and the digits.

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
@group(0) @binding(auto) var<storage, read_write> out: array<u32>;

//#include "lib/grid"
//#include "lib/sort_key"

var<workgroup> histogram: array<atomic<u32>, 256>;

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
    for (var digit = local_index; digit < 256u; digit += WORKGROUP_SIZE) {
        atomicStore(&histogram[digit], 0u);
    }
    workgroupBarrier();
    let end = min((tile + 1u) * TILE, p.line_len);
    for (var k = tile * TILE + local_index; k < end; k += WORKGROUP_SIZE) {
        let digit = (key_of(x[line * p.line_len + k]) >> p.shift) & 255u;
        atomicAdd(&histogram[digit], 1u);
    }
    workgroupBarrier();
    for (var digit = local_index; digit < 256u; digit += WORKGROUP_SIZE) {
        out[(line * 256u + digit) * p.tiles + tile] = atomicLoad(&histogram[digit]);
    }
}
