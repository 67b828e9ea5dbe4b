// conv2d_x_backward: the gradient of conv2d with respect to its input, which is also the transposed
// convolution: out[n, c, y, x] = sum over o, i, j of grad[n, o, h, w] * weight[o, c, i, j], where
// h*stride + i*dilation - padding = y and the same for w; plus bias[c] (BIAS).
// As a product of [c, oij] and [oij, nyx], so the weight arrives as [group, c, o, i, j]. One product per group.
//#include "lib/grid"
//#include "lib/conv"

@group(0) @binding(auto) var<uniform> p: Params;
//#if A_QUAD
@group(0) @binding(auto) var<storage, read> weight: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read> weight: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
//#if BIAS
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
//#endif
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
    return (group_id * p.gemm.m + row) * p.gemm.k + k;
}

//#if A_QUAD
fn a_quad(row: u32, k: u32) -> vec4<f32> {
    return weight[a_index(row, k) >> 2u];
}
//#else
fn a_at(row: u32, k: u32) -> f32 {
    return weight[a_index(row, k)];
}
//#endif

// An input pixel: its image, and the padded position that a tap must reach.
struct Column {
    base: u32,
    y: u32,
    x: u32,
}

fn column(col: u32) -> Column {
    let n = col / (p.in_h * p.in_w);
    let base = (n * p.groups + group_id) * p.out_c * p.out_h * p.out_w;
    return Column(base, col / p.in_w % p.in_h + p.pad_h, col % p.in_w + p.pad_w);
}

struct Inner {
    base: u32,
    y: u32,
    x: u32,
}

fn inner(k: u32) -> Inner {
    let o = k / (p.kernel_h * p.kernel_w);
    let i = k / p.kernel_w % p.kernel_h;
    return Inner(o * p.out_h * p.out_w, i * p.dilation_h, k % p.kernel_w * p.dilation_w);
}

fn b_at(r: Inner, c: Column) -> f32 {
    // Before the first tap the difference wraps to a number too large for any output.
    var h = c.y - r.y;
    var w = c.x - r.x;
    var inside = true;
//#if STRIDED
    inside = c.y >= r.y && c.x >= r.x && h % p.stride_h == 0u && w % p.stride_w == 0u;
    h /= p.stride_h;
    w /= p.stride_w;
//#endif
    inside = inside && h < p.out_h && w < p.out_w;
    return select(0.0, grad[select(0u, c.base + r.base + h * p.out_w + w, inside)], inside);
}

fn out_row(batch: u32, row: u32) -> u32 {
    return (batch * p.gemm.m + row) * p.in_h * p.in_w;
}

fn out_col(split: u32, col: u32) -> u32 {
    let area = p.in_h * p.in_w;
    return (split * p.images + col / area) * p.groups * p.gemm.m * area + col % area;
}

fn bias_of_row(row: u32) -> f32 {
//#if BIAS
    return bias[group_id * p.gemm.m + row];
//#else
    return 0.0;
//#endif
}

fn bias_of_col(col: u32) -> f32 {
    return 0.0;
}

//#include "lib/gemm"
