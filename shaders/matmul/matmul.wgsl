// matmul: out[b, i, j] = sum over k of a[b, i, k] * b[b, k, j], plus bias[j].
// Operands are read through their strides: transposing or broadcasting one costs no copy.
//#include "lib/walk"

struct Params {
    gemm: Gemm,
    // Strides of a row of a and of a column of b; the strides along k are gemm.a_step and gemm.b_step.
    a_row: u32,
    b_col: u32,
    has_bias: u32,
    pad0: u32,
    // Where the matrices of the batch start, in a (y) and b (z).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;

var<private> a_start: u32;
var<private> b_start: u32;

fn begin(batch: u32) {
    let at = locate(batch);
    a_start = at.y;
    b_start = at.z;
}

fn row_at(row: u32) -> u32 {
    return a_start + row * p.a_row;
}

fn col_at(col: u32) -> u32 {
    return b_start + col * p.b_col;
}

fn a_outer(o: u32) -> u32 {
    return o * p.gemm.inner * p.gemm.a_step;
}

fn b_outer(o: u32) -> u32 {
    return o * p.gemm.inner * p.gemm.b_step;
}

fn out_row(batch: u32, row: u32) -> u32 {
    return (batch * p.gemm.m + row) * p.gemm.n;
}

fn out_col(split: u32, col: u32) -> u32 {
    let batches = p.gemm.tiles / p.gemm.row_tiles / p.gemm.col_tiles / p.gemm.splits;
    return split * batches * p.gemm.m * p.gemm.n + col;
}

fn bias_of_col(col: u32) -> f32 {
    if (p.has_bias == 0u) { return 0.0; }
    return bias[col];
}

//#if TILED
//#include "lib/gemm_tiled"
//#else
//#include "lib/gemm_direct"
//#endif
