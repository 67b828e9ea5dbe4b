// sort_line: out[line, rank(k)] = x[line, k] and out_indices[line, rank(k)] = k, for lines that a workgroup
// sorts at once. All are [lines, line_len], packed. lib/sort_key lists the flags.
// Each workgroup sorts one line.

struct Params {
    lines: u32,
    // Elements of a line: at most those of a tile.
    line_len: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
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
    let line = group_index(group, groups);
    if (line >= p.lines) { return; }
    let line_start = line * p.line_len;
    for (var k = local_index; k < TILE; k += WORKGROUP_SIZE) {
        // Entries past the end sort last: they come after all others of the greatest key.
        var key = 0xffffffffu;
        if (k < p.line_len) { key = key_of(x[line_start + k]); }
        keys[k] = key;
        places[k] = k;
    }
    workgroupBarrier();
    for (var shift = 0u; shift < 32u; shift += 4u) {
        sort_by_digit(shift, local_index);
    }
    for (var k = local_index; k < p.line_len; k += WORKGROUP_SIZE) {
        out[line_start + k] = x[line_start + places[k]];
        out_indices[line_start + k] = i32(places[k]);
    }
}
