// matvec: out[r] = sum over k of a[r, k] * x[k], for a batch of matrices with a vector each.
// A team sums four rows, or a part of them: the sums of parts lie [split][row]. Default: a row's elements are neighbours,
// and a read brings four steps of each row. ACROSS: rows are neighbours, and a read brings one step of all four.
//#include "lib/grid"
//#include "lib/layout"
//#include "lib/quad"
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
    outputs: u32,
    pad0: u32,
    pad1: u32,
    // Where each matrix and its vector start.
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> a: array<Quad>;
//#if ACROSS
@group(0) @binding(auto) var<storage, read> x: array<f32>;
//#else
@group(0) @binding(auto) var<storage, read> x: array<Quad>;
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

fn floats(quad: Quad) -> vec4<f32> {
    return bitcast<vec4<f32>>(words_of(quad));
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Past the end the last rows are summed once more, to be there at the barriers.
    let wanted = group_index(group, groups) * TEAMS + team_of(lane);
//#if !TEAM
    if (wanted >= p.lines * p.splits) { return; }
//#endif
    let index = min(wanted, p.lines * p.splits - 1u);
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
        sums = fma(vec4<f32>(x[x_at]), floats(a[at]), sums);
//#else
        let v = floats(x[x_at]);
        sums += vec4<f32>(dot(floats(a[at.x]), v), dot(floats(a[at.y]), v), dot(floats(a[at.z]), v), dot(floats(a[at.w]), v));
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
