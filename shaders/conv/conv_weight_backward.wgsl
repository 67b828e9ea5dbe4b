// conv_weight_backward: the gradient of conv with respect to its weight:
// out[o, c, i, j] = sum over n, h, w of grad[n, o, h, w] * x[n, c, h*stride + i*dilation, ..] for a padded x.
// As a product of [o, nhw] and [nhw, cij]. One product per group. With VOLUME there is a depth before each height.
//#include "lib/grid"
//#include "lib/conv"

@group(0) @binding(auto) var<uniform> p: Params;
//#if A_QUAD
@group(0) @binding(auto) var<storage, read> grad: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read> x: array<f32>;
//#if OUT_QUAD
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#endif

var<private> group_id: u32;

fn begin(batch: u32) {
    group_id = batch;
}

fn a_index(row: u32, k: u32) -> u32 {
    return ((k / p.out_len * p.groups + group_id) * p.gemm.m + row) * p.out_len + k % p.out_len;
}

//#if A_QUAD
fn a_quad(row: u32, k: u32) -> vec4<f32> {
    return grad[a_index(row, k) >> 2u];
}
//#else
fn a_at(row: u32, k: u32) -> f32 {
    return grad[a_index(row, k)];
}
//#endif

// An element of the kernel: where its tap lies in the group.
struct Column {
    at: u32,
}

fn column(col: u32) -> Column {
    return Column(group_id * p.in_c * p.in_len + tap(col));
}

// An output pixel: its image, and where its window starts.
struct Inner {
    at: u32,
}

fn inner(k: u32) -> Inner {
    return Inner(k / p.out_len * p.groups * p.in_c * p.in_len + window(k % p.out_len));
}

fn b_at(r: Inner, c: Column) -> f32 {
    return x[r.at + c.at];
}

fn out_row(batch: u32, row: u32) -> u32 {
    return (batch * p.gemm.m + row) * p.gemm.n;
}

fn out_col(split: u32, col: u32) -> u32 {
    return split * p.groups * p.gemm.m * p.gemm.n + col;
}

fn bias_of_row(row: u32) -> f32 {
    return 0.0;
}

fn bias_of_col(col: u32) -> f32 {
    return 0.0;
}

//#include "lib/gemm"
