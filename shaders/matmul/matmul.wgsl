// matmul: out[b, i, j] = sum over k of a[b, i, k] * b[b, k, j], plus bias[j].
// Operands are read through their strides: transposing or broadcasting one costs no copy.
//#include "lib/grid"
//#include "lib/layout"

struct Params {
    gemm: Gemm,
    // Strides of a row and a column of a and b.
    a_row: u32,
    a_col: u32,
    b_row: u32,
    b_col: u32,
    has_bias: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
    // Where each matrix of the batch starts in a (y) and b (z).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
//#if A_QUAD
@group(0) @binding(auto) var<storage, read> a: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read> a: array<f32>;
//#endif
//#if B_QUAD
@group(0) @binding(auto) var<storage, read> b: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read> b: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
//#if OUT_QUAD
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#endif

var<private> a_start: u32;
var<private> b_start: u32;

fn begin(batch: u32) {
    let at = locate(batch);
    a_start = at.y;
    b_start = at.z;
}

//#if A_QUAD
fn a_quad(row: u32, k: u32) -> vec4<f32> {
    return a[(a_start + row * p.a_row + k) >> 2u];
}
//#else
fn a_at(row: u32, k: u32) -> f32 {
    return a[a_start + row * p.a_row + k * p.a_col];
}
//#endif

//#if B_QUAD
fn b_quad(k: u32, col: u32) -> vec4<f32> {
    return b[(b_start + k * p.b_row + col) >> 2u];
}
//#endif

struct Column {
    at: u32,
}

fn column(col: u32) -> Column {
    return Column(b_start + col * p.b_col);
}

struct Inner {
    at: u32,
}

fn inner(k: u32) -> Inner {
    return Inner(k * p.b_row);
}

//#if !B_QUAD
fn b_at(r: Inner, c: Column) -> f32 {
    return b[r.at + c.at];
}
//#endif

fn out_row(batch: u32, row: u32) -> u32 {
    return (batch * p.gemm.m + row) * p.gemm.n;
}

fn out_col(split: u32, col: u32) -> u32 {
    let batches = p.gemm.tiles / p.gemm.row_tiles / p.gemm.col_tiles / p.gemm.splits;
    return split * batches * p.gemm.m * p.gemm.n + col;
}

fn bias_of_row(row: u32) -> f32 {
    return 0.0;
}

fn bias_of_col(col: u32) -> f32 {
    if (p.has_bias == 0u) { return 0.0; }
    return bias[col];
}

//#include "lib/gemm"
