// scan_tile: out[line, k] = COMBINE over j <= k of x[line, j], along the last axis. x and out are packed.
// COMBINE: the launcher's expression of two elements `a` and `b`.
// TOTALS: out[line, tile] = COMBINE over the elements of the tile.
// CARRY: a tile starts from carry[line, tile - 1], which combines all tiles before it.
// Each workgroup scans one tile of a line, of p.chunk_len elements: four neighbours per invocation.
// Rounds: the elements of a tile for each invocation, a few times.

// The element type.
alias E = f32;

struct Params {
    // Tiles of all lines.
    count: u32,
    // Tiles of a line.
    chunks: u32,
    // Elements of a line.
    len: u32,
    // Elements of a tile; the last one may have fewer.
    chunk_len: u32,
    // Distance between the elements of a line: 1.
    stride: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<E>;
//#if CARRY
@group(0) @binding(auto) var<storage, read> carry: array<E>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

//#include "lib/grid"

const WORKGROUP_SIZE: u32 = 256u;
const OWN: u32 = 4u;
const TILE: u32 = WORKGROUP_SIZE * OWN;

// The elements of the tile. Each invocation's are padded by one, so that neighbours are in different banks.
var<workgroup> elements: array<E, TILE + WORKGROUP_SIZE>;
// For each invocation: its elements combined with those of the invocations before it, in parts of 16.
var<workgroup> totals: array<E, WORKGROUP_SIZE>;

fn combine(a: E, b: E) -> E {
    return COMBINE;
}

fn element_index(k: u32) -> u32 {
    return k + k / OWN;
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let index = group_index(group, groups);
    if (index >= p.count) { return; }
    let tile = index % p.chunks;
    let start = index / p.chunks * p.len + tile * p.chunk_len;
    let tile_len = min(p.chunk_len, p.len - tile * p.chunk_len);
    for (var k = local_index; k < TILE; k += WORKGROUP_SIZE) {
        // What follows the last element changes no result.
        elements[element_index(k)] = x[start + min(k, tile_len - 1u)];
    }
    workgroupBarrier();
    let first = local_index * (OWN + 1u);
    var total = elements[first];
    for (var k = 1u; k < OWN; k++) {
        total = combine(total, elements[first + k]);
        elements[first + k] = total;
    }
    totals[local_index] = total;
    workgroupBarrier();
    // One invocation in 16 combines the totals of its part.
    if (local_index % 16u == 0u) {
        for (var k = 1u; k < 16u; k++) {
            total = combine(total, totals[local_index + k]);
            totals[local_index + k] = total;
        }
    }
    workgroupBarrier();
    var has_before = false;
    var before = total;
//#if CARRY
    if (tile > 0u) {
        before = carry[index - 1u];
        has_before = true;
    }
//#endif
    for (var k = 15u; k < local_index / 16u * 16u; k += 16u) {
        before = select(totals[k], combine(before, totals[k]), has_before);
        has_before = true;
    }
    if (local_index % 16u > 0u) {
        before = select(totals[local_index - 1u], combine(before, totals[local_index - 1u]), has_before);
        has_before = true;
    }
    if (has_before) {
        for (var k = 0u; k < OWN; k++) {
            elements[first + k] = combine(before, elements[first + k]);
        }
    }
    workgroupBarrier();
//#if TOTALS
    if (local_index == 0u) { out[index] = elements[element_index(tile_len - 1u)]; }
//#else
    for (var k = local_index; k < tile_len; k += WORKGROUP_SIZE) {
        out[start + k] = elements[element_index(k)];
    }
//#endif
}
//#use "lib/math"
