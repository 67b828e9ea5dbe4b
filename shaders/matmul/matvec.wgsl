// matvec: out[r] = sum over k of a[r, k] * x[k], for a batch of matrices with a vector each.
// A team sums four rows, or a part of them: the sums of parts lie [split][row]. Default: a row's elements are neighbours,
// and a read brings four steps of each row. ACROSS: rows are neighbours, and a read brings one step of all four.
//#include "lib/grid"
//#include "lib/layout"
//#include "lib/row"
//#include "lib/team"

struct Params {
    // Of a matrix: its rows, and the fours of them.
    rows: u32,
    fours: u32,
    // Fours in all, parts of each, reads in a row, reads in a part.
    lines: u32,
    splits: u32,
    len: u32,
    chunk: u32,
    // From one row to the next, and from one read to the next, in quads.
    row: u32,
    step: u32,
    // The same of x, in quads or, with ACROSS, elements.
    x_step: u32,
    // Rows in all.
    outputs: u32,
    pad0: u32,
    pad1: u32,
    // Where each matrix and its vector start.
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> a: array<Word>;
//#if ACROSS
@group(0) @binding(auto) var<storage, read> x: array<f32>;
//#else
@group(0) @binding(auto) var<storage, read> x: array<Word>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

// The sums of four rows.
alias Part = vec4<f32>;

fn joined(a: Part, b: Part) -> Part {
    return a + b;
}

//#if SUBGROUP
fn shuffled(part: Part, mask: u32) -> Part {
    return subgroupShuffleXor(part, mask);
}
//#endif

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let team = group_index(group, groups) * TEAMS + team_of(lane);
    if (is_spare(team, p.lines * p.splits)) { return; }
    let index = min(team, p.lines * p.splits - 1u);
    let split = index / p.lines;
    let line = index % p.lines;
    let matrix = line / p.fours;
    let four = line % p.fours * 4u;
    let rows = min(vec4<u32>(four, four + 1u, four + 2u, four + 3u), vec4<u32>(p.rows - 1u));
    let starts = locate(matrix);
    let first = split * p.chunk + member_of(lane);
    let end = split * p.chunk + min(p.chunk, p.len - split * p.chunk);
    var sums = Part();
//#if ACROSS
    var at = ((starts.x + four) >> 2u) + first * p.step;
    var x_at = starts.y + first * p.x_step;
//#else
    var at = (starts.x >> 2u) + rows * p.row + first * p.step;
    var x_at = (starts.y >> 2u) + first * p.x_step;
//#endif
    for (var k = first; k < end; k += SPAN) {
//#if ACROSS
        sums = fma(vec4<f32>(x[x_at]), values_of(a[at]), sums);
//#else
        let v = values_of(x[x_at]);
        sums += vec4<f32>(dot(values_of(a[at.x]), v), dot(values_of(a[at.y]), v), dot(values_of(a[at.z]), v), dot(values_of(a[at.w]), v));
//#endif
        at += SPAN * p.step;
        x_at += SPAN * p.x_step;
    }
    sums = over_team(lane, sums);
    if (member_of(lane) == 0u) {
        let to = split * p.outputs + matrix * p.rows;
//#repeat I 4
        out[to + rows[I]] = sums[I];
//#end
    }
}
