// conv_tiled_weight_backward: out[o, c, i, j, l] = sum over n, d, h, w of
//   grad[n, o, d, h, w] * x[n, c, d*stride + i*dilation - padding, h*stride + j*dilation - padding, ..],
// for the channels c and o of each group: the gradient of conv_tiled with respect to its weight.
// a is grad, [n, groups, o, d, h, w], and b is x. out is [splits, groups, o, c, i, j, l]. All are packed.
// Implicit GEMM for each group: the product of [o, pixels] and windows [pixels, c * taps], which are never stored. k
// has the rows of pixels, with steps added up to a multiple of four.
// lib/gemm and lib/gemm_tiles list the flags.
// Each workgroup computes one tile of one split of one group.
// Rounds: a quarter of the steps of k of a split, or fewer.
//#include "lib/conv_tiled"

@group(0) @binding(auto) var<uniform> p: Params;

var<private> conv_group: u32;

fn begin(batch: u32) {
    conv_group = batch;
}

// The first step of k of a tile, and the one after the last.
fn k_range(tile: Tile) -> vec2<u32> {
    return split_range(tile, p.gemm.outer * p.gemm.inner);
}

// Where in k an invocation loads four pixels: a row of pixels of all images, and a place in it.
struct Position {
    plane: u32,
    h: u32,
    w: u32,
}

fn position(k: u32) -> Position {
    let row = k / p.gemm.inner;
    let plane = row / p.window.out_h;
    return Position(plane, row - plane * p.window.out_h, k - row * p.gemm.inner);
}

fn moved(at: Position, by: Position) -> Position {
    let w = at.w + by.w;
    let next_row = w >= p.gemm.inner;
    let h = at.h + by.h + u32(next_row);
    let next_plane = h >= p.window.out_h;
    return Position(
        at.plane + by.plane + u32(next_plane),
        select(h, h - p.window.out_h, next_plane),
        select(w, w - p.gemm.inner, next_row),
    );
}

// The image and the depth of a plane. Past the last plane, those of the last one.
fn image_of(plane: u32) -> vec2<u32> {
    let last = p.gemm.outer / p.window.out_h - 1u;
//#if VOLUME
    let image = min(plane, last) / p.window.out_d;
    return vec2<u32>(image, min(plane, last) - image * p.window.out_d);
//#else
    return vec2<u32>(min(plane, last), 0u);
//#endif
}

alias Rows = u32;

fn a_rows(row: u32) -> Rows {
    let pixels = p.window.out_d * p.window.out_h * p.window.out_w;
    return (conv_group * p.gemm.m + min(row, p.gemm.m - 1u)) * pixels;
}

fn load_a(rows: Rows, at: Position) -> Loaded4 {
    let image = image_of(at.plane);
    let width = p.window.out_w;
    let plane = image.x * p.groups * p.gemm.m * p.window.out_d + image.y;
    let start = rows + (plane * p.window.out_h + at.h) * width;
//#if VEC4
    return to_loaded(a[(start + at.w) >> 2u]);
//#else
    let w = at.w + vec4<u32>(0u, 1u, 2u, 3u);
    let i = start + min(w, vec4<u32>(width - 1u));
    return select(Loaded4(), Loaded4(a[i.x], a[i.y], a[i.z], a[i.w]), w < vec4<u32>(width));
//#endif
}

// A tap and channel: its place under the first window.
alias Cols = Place;

fn b_cols(col: u32) -> Cols {
    let w = p.window;
    let index = min(col, p.gemm.n - 1u);
    let row = index / w.kernel_w;
    let plane = row / w.kernel_h;
    let channel = plane / w.kernel_d;
    let start = (conv_group * p.channels + channel) * b_plane();
    return shifted(
        Place(start, 0, 0, 0),
        i32((plane - channel * w.kernel_d) * w.dilation_d) - i32(p.padding_d),
        i32((row - plane * w.kernel_h) * w.dilation_h) - i32(p.padding_h),
        i32((index - row * w.kernel_w) * w.dilation_w) - i32(p.padding_w),
    );
}

fn load_b(cols: Cols, at: Position) -> Loaded4 {
    let size = b_size();
    let window = p.window;
    let image = image_of(at.plane);
    let d = i32(image.y * window.stride_d);
    var first = shifted(cols, d, i32(at.h * window.stride_h), i32(at.w * window.stride_w));
    first.offset += image.x * p.groups * p.channels * b_plane();
    let pixels = vec4<u32>(0u, 1u, 2u, 3u);
    let steps = pixels * window.stride_w;
    let w = bitcast<vec4<u32>>(first.w + vec4<i32>(steps));
    // Whether the row is inside, wherever its pixels are.
    first.w = 0;
    var valid = vec4<bool>(is_inside(first)) & (w < vec4<u32>(size.z));
//#if !VEC4
    valid &= at.w + pixels < vec4<u32>(window.out_w);
//#endif
    let i = select(vec4<u32>(), first.offset + steps, valid);
    return select(Loaded4(), Loaded4(b[i.x], b[i.y], b[i.z], b[i.w]), valid);
}

fn out_row_offset(batch: u32, row: u32) -> u32 {
    return (batch * p.gemm.m + row) * p.gemm.n;
}

fn out_col_offset(split: u32, col: u32) -> u32 {
    return split * p.groups * p.gemm.m * p.gemm.n + col;
}

fn bias_at(row: u32) -> f32 {
    return 0.0;
}

//#if UNITS
//#include "lib/gemm_units"
//#else
//#include "lib/gemm_tiled"
//#endif
