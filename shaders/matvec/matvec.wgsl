// matvec: out[n, v, r] = sum over k of a[n, r, k] * x[n, v, k], for matrix n of a batch and a few vectors.
// The matrices and vectors are read through their strides, each element of a matrix once. out is
// [splits, n, v, r] or [splits, n, r, v], packed: k may be split.
// Default: rows are contiguous, and a load has four steps of one row.
// ACROSS: columns are contiguous, and a load has one step of four rows.
// Each team sums one split of a line, which is a block of four rows of a matrix.
// Rounds: split_len / TEAM_SIZE.
//#include "lib/walk"
//#include "lib/vector"
//#include "lib/team"
//#include "lib/matvec"

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
    // Distances between the loads of x and between its vectors: in vec4s or, with ACROSS, in elements.
    x_step: u32,
    x_vector: u32,
    // Vectors of a matrix.
    vectors: u32,
    // Distance between the rows of out: 1 or the number of vectors.
    out_row: u32,
    // The offset of each matrix in a (x), and of its first vector in x (y).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> a: array<Load>;
//#if ACROSS
@group(0) @binding(auto) var<storage, read> x: array<f32>;
//#else
@group(0) @binding(auto) var<storage, read> x: array<Load>;
//#endif
//#if OUT_VEC4
@group(0) @binding(auto) var<storage, read_write> out: array<Words4>;
//#else
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#endif

// The distance of a vector from the first one. Vectors past the last one repeat it.
fn x_offset(vector: u32) -> u32 {
    return min(vector, p.vectors - 1u) * p.x_vector;
}

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
    var sums: array<Partial, VECTORS>;
//#if ACROSS
    var a_index = ((starts.x + row) >> 2u) + first * p.a_step;
    var x_index = starts.y + first * p.x_step;
//#else
    var a_index = (starts.x >> 2u) + rows * p.a_row + first * p.a_step;
    var x_index = (starts.y >> 2u) + first * p.x_step;
//#endif
    for (var k = first; k < end; k += TEAM_SIZE) {
//#if ACROSS
        let column = to_values(a[a_index]);
//#repeat V VECTORS
        sums[V] = fma(vec4<f32>(x[x_index + x_offset(V)]), column, sums[V]);
//#end
//#else
        let row0 = to_values(a[a_index.x]);
        let row1 = to_values(a[a_index.y]);
        let row2 = to_values(a[a_index.z]);
        let row3 = to_values(a[a_index.w]);
//#repeat V VECTORS
        {
            let v = to_values(x[x_index + x_offset(V)]);
            sums[V] += vec4<f32>(dot(row0, v), dot(row1, v), dot(row2, v), dot(row3, v));
        }
//#end
//#endif
        a_index += TEAM_SIZE * p.a_step;
        x_index += TEAM_SIZE * p.x_step;
    }
    let start = (split * (p.lines / p.row_blocks) + matrix) * p.rows * p.vectors;
    store_sums(local_index, start, rows, sums);
}
