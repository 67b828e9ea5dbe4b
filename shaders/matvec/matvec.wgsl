// matvec: out[r] = sum over k of a[r, k] * x[k], for a batch of matrices with a vector each. A team sums a
// block of four rows, or a split of them; sums of splits are [split][row]. Default: rows are contiguous, and
// a load has four steps of a row. ACROSS: columns are contiguous, and a load has one step of four rows.
//#include "lib/grid"
//#include "lib/walk"
//#include "lib/vector"
//#include "lib/team"

struct Params {
    // Rows of a matrix, and blocks of four of them.
    rows: u32,
    row_blocks: u32,
    // Row blocks of all matrices, splits of each, loads of a row, loads of a split.
    lines: u32,
    splits: u32,
    len: u32,
    split_len: u32,
    // Distances between rows of a and between its loads, in vec4s.
    a_row: u32,
    a_step: u32,
    // Distance between loads of x: in vec4s or, with ACROSS, elements.
    x_step: u32,
    // Rows of all matrices.
    outputs: u32,
    pad0: u32,
    pad1: u32,
    // Where each matrix (x) and its vector (y) start.
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> a: array<Load>;
//#if ACROSS
@group(0) @binding(auto) var<storage, read> x: array<f32>;
//#else
@group(0) @binding(auto) var<storage, read> x: array<Load>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

// The sums of four rows.
alias Partial = vec4<f32>;

fn combine(a: Partial, b: Partial) -> Partial {
    return a + b;
}

//#if SUBGROUP
fn shuffle_xor(partial: Partial, mask: u32) -> Partial {
    return subgroupShuffleXor(partial, mask);
}
//#endif

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let team = group_index(group, groups) * TEAMS + team_index(local_index);
    if (may_exit(team, p.lines * p.splits)) { return; }
    let index = min(team, p.lines * p.splits - 1u);
    let split = index / p.lines;
    let line = index % p.lines;
    let matrix = line / p.row_blocks;
    let row = line % p.row_blocks * 4u;
    let rows = min(vec4<u32>(row, row + 1u, row + 2u, row + 3u), vec4<u32>(p.rows - 1u));
    let starts = locate(matrix);
    let first = split * p.split_len + member_index(local_index);
    let end = split * p.split_len + min(p.split_len, p.len - split * p.split_len);
    var sums = Partial();
//#if ACROSS
    var at = ((starts.x + row) >> 2u) + first * p.a_step;
    var x_at = starts.y + first * p.x_step;
//#else
    var at = (starts.x >> 2u) + rows * p.a_row + first * p.a_step;
    var x_at = (starts.y >> 2u) + first * p.x_step;
//#endif
    for (var k = first; k < end; k += TEAM_SIZE) {
//#if ACROSS
        sums = fma(vec4<f32>(x[x_at]), to_values(a[at]), sums);
//#else
        let v = to_values(x[x_at]);
        sums += vec4<f32>(
            dot(to_values(a[at.x]), v),
            dot(to_values(a[at.y]), v),
            dot(to_values(a[at.z]), v),
            dot(to_values(a[at.w]), v),
        );
//#endif
        at += TEAM_SIZE * p.a_step;
        x_at += TEAM_SIZE * p.x_step;
    }
    sums = team_combine(local_index, sums);
    if (member_index(local_index) == 0u) {
        let to = split * p.outputs + matrix * p.rows;
//#repeat I 4
        out[to + rows[I]] = sums[I];
//#end
    }
}
