// conv2d_x_backward: the gradient of conv2d with respect to its input, which is also the transposed
// convolution: out[n, c, y, x] = sum over o, i, j of grad[n, o, h, w] * weight[o, c, i, j], where
// h*stride + i*dilation - padding = y and the same for w; plus bias[c] (BIAS).
// As a product of [c, oij] and [oij, nyx]. One product per group.
//#include "lib/grid"
//#include "lib/conv"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> weight: array<f32>;
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
//#if BIAS
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

var<private> group_id: u32;

fn begin(batch: u32) {
    group_id = batch;
}

fn a_at(row: u32, k: u32) -> f32 {
    let taps = p.kernel_h * p.kernel_w;
    let o = k / taps;
    return weight[((group_id * p.out_c + o) * p.gemm.m + row) * taps + k % taps];
}

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
//#if STRIDED
    if (c.y < r.y || c.x < r.x || h % p.stride_h != 0u || w % p.stride_w != 0u) { return 0.0; }
    h /= p.stride_h;
    w /= p.stride_w;
//#endif
    if (h >= p.out_h || w >= p.out_w) { return 0.0; }
    return grad[c.base + r.base + h * p.out_w + w];
}

fn store(batch: u32, split: u32, row: u32, col: u32, value: f32) {
    let area = p.in_h * p.in_w;
    let channel = batch * p.gemm.m + row;
    let at = (split * p.images + col / area) * p.groups * p.gemm.m * area + channel * area + col % area;
//#if BIAS
    out[at] = value + bias[channel];
//#else
    out[at] = value;
//#endif
}

//#include "lib/gemm"
