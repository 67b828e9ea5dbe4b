// conv: out[n, o, h, w] = bias[o] + sum over c, i, j of x[n, c, h*stride + i*dilation, ..] * weight[o, c, i, j]
// for a padded x, as a product of [o, cij] and [cij, nhw] whose right side is never written out. One product per group.
// With VOLUME there is a depth before each height.
//#include "lib/grid"
//#include "lib/conv"

@group(0) @binding(auto) var<uniform> p: Params;
//#if A_QUAD
@group(0) @binding(auto) var<storage, read> weight: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read> weight: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
//#if OUT_QUAD
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#endif

var<private> group_id: u32;

fn begin(batch: u32) {
    group_id = batch;
}

//#if A_QUAD
fn a_quad(row: u32, k: u32) -> vec4<f32> {
    return weight[((group_id * p.gemm.m + row) * p.gemm.k + k) >> 2u];
}
//#else
fn a_at(row: u32, k: u32) -> f32 {
    return weight[(group_id * p.gemm.m + row) * p.gemm.k + k];
}
//#endif

// An output pixel: where its window starts.
struct Column {
    at: u32,
}

fn column(col: u32) -> Column {
    let image = (col / p.out_len * p.groups + group_id) * p.in_c * p.in_len;
    return Column(image + window(col % p.out_len));
}

struct Inner {
    at: u32,
}

fn inner(k: u32) -> Inner {
    return Inner(tap(k));
}

fn b_at(r: Inner, c: Column) -> f32 {
    return x[r.at + c.at];
}

fn out_row(batch: u32, row: u32) -> u32 {
    return (batch * p.gemm.m + row) * p.out_len;
}

fn out_col(split: u32, col: u32) -> u32 {
    return (split * p.images + col / p.out_len) * p.groups * p.gemm.m * p.out_len + col % p.out_len;
}

fn bias_of_row(row: u32) -> f32 {
    if (p.has_bias == 0u) { return 0.0; }
    return bias[group_id * p.gemm.m + row];
}

fn bias_of_col(col: u32) -> f32 {
    return 0.0;
}

//#include "lib/gemm"
