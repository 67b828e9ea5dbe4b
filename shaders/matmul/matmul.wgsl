// matmul: out[n, i, j] = bias[j] + sum over k of a[n, i, k] * b[n, k, j], for matrix n of a batch.
// The operands are read through their strides: transposing or broadcasting one costs no copy.
// out is [splits, n, i, j], packed. lib/gemm lists the flags.
// Each workgroup computes one tile of one split of one matrix; for small products, each group of invocations.
// Rounds: those of lib/gemm_direct, or fewer: the steps of k of a split.
//#include "lib/walk"

struct Params {
    gemm: Gemm,
    // Strides of a row of a and of a column of b; the strides along k are gemm.a_step and gemm.b_step.
    a_row: u32,
    b_col: u32,
    has_bias: u32,
    pad0: u32,
    // The offset of each matrix in a (y) and b (z).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;

// The offsets of the matrices that this invocation reads.
var<private> a_matrix_offset: u32;
var<private> b_matrix_offset: u32;

fn begin(batch: u32) {
    let offsets = locate(batch);
    a_matrix_offset = offsets.y;
    b_matrix_offset = offsets.z;
}

fn a_row_offset(row: u32) -> u32 {
    return a_matrix_offset + row * p.a_row;
}

fn b_col_offset(col: u32) -> u32 {
    return b_matrix_offset + col * p.b_col;
}

fn a_run_offset(o: u32) -> u32 {
    return o * p.gemm.inner * p.gemm.a_step;
}

fn b_run_offset(o: u32) -> u32 {
    return o * p.gemm.inner * p.gemm.b_step;
}

fn out_row_offset(batch: u32, row: u32) -> u32 {
    return (batch * p.gemm.m + row) * p.gemm.n;
}

fn out_col_offset(split: u32, col: u32) -> u32 {
    let batches = p.gemm.tiles / p.gemm.row_tiles / p.gemm.col_tiles / p.gemm.splits;
    return split * batches * p.gemm.m * p.gemm.n + col;
}

fn bias_at(col: u32) -> f32 {
    if (p.has_bias == 0u) { return 0.0; }
    return bias[col];
}

//#if TILED
//#include "lib/gemm_tiled"
//#else
//#if UNITS
//#include "lib/gemm_units"
//#else
//#include "lib/gemm_direct"
//#endif
//#endif
