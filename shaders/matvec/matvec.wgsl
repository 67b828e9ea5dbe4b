// matvec: out[n, r] = sum over k of a[n, r, k] * x[n, k], for matrix n of a batch.
// The matrices and vectors are read through their strides. out is [splits, n, r], packed: k may be split.
// Default: rows are contiguous, and a load has four steps of one row.
// ACROSS: columns are contiguous, and a load has one step of four rows.
// Each team sums one split of a line, which is a block of four rows of a matrix.
//#include "lib/walk"
//#include "lib/vector"
//#include "lib/team"

struct Params {
    // Splits of all lines.
    count: u32,
    // Rows of a matrix, and its blocks of four rows.
    rows: u32,
    row_blocks: u32,
    // Row blocks of all matrices.
    lines: u32,
    // Loads of a line.
    len: u32,
    // Loads of a split; the last one may have fewer.
    split_len: u32,
    // Distances between the rows of a and between its loads, in vec4s.
    a_row: u32,
    a_step: u32,
    // Distance between the loads of x: in vec4s or, with ACROSS, in elements.
    x_step: u32,
    // Rows of all matrices.
    outputs: u32,
    pad0: u32,
    pad1: u32,
    // The offset of each matrix in a (x), and of its vector in x (y).
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

fn reduce_line(index: u32, local_index: u32) {
    let split = index / p.lines;
    let line = index % p.lines;
    let matrix = line / p.row_blocks;
    let row = line % p.row_blocks * 4u;
    // Rows past the edge repeat the last one and store the same sum again.
    let rows = min(vec4<u32>(row, row + 1u, row + 2u, row + 3u), vec4<u32>(p.rows - 1u));
    let starts = locate(matrix);
    let first = split * p.split_len + member_index(local_index);
    let end = split * p.split_len + min(p.split_len, p.len - split * p.split_len);
    var sums = Partial();
//#if ACROSS
    var a_index = ((starts.x + row) >> 2u) + first * p.a_step;
    var x_index = starts.y + first * p.x_step;
//#else
    var a_index = (starts.x >> 2u) + rows * p.a_row + first * p.a_step;
    var x_index = (starts.y >> 2u) + first * p.x_step;
//#endif
    for (var k = first; k < end; k += TEAM_SIZE) {
//#if ACROSS
        sums = fma(vec4<f32>(x[x_index]), to_values(a[a_index]), sums);
//#else
        let v = to_values(x[x_index]);
        sums += vec4<f32>(
            dot(to_values(a[a_index.x]), v),
            dot(to_values(a[a_index.y]), v),
            dot(to_values(a[a_index.z]), v),
            dot(to_values(a[a_index.w]), v),
        );
//#endif
        a_index += TEAM_SIZE * p.a_step;
        x_index += TEAM_SIZE * p.x_step;
    }
    sums = team_combine(local_index, sums);
    if (member_index(local_index) == 0u) {
        let start = split * p.outputs + matrix * p.rows;
//#repeat I 4
        out[start + rows[I]] = sums[I];
//#end
    }
}
