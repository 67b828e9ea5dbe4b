// conv_tiled: out[n, o, d, h, w] = bias[o] + sum over c, i, j, l of
//   b[n, c, d*stride + i*dilation - padding, h*stride + j*dilation - padding, ..] * weight[o, c, i, j, l],
// for the channels c and o of each group.
// TRANSPOSED: the transpose of that: out[n, o, at] = bias[o] + sum of b[n, c, from] * weight[o, c, tap] over every c,
// from and tap with at = from*stride + tap*dilation - padding. Elements of out with the same remainder of
// (at + padding) / stride are reached by the same taps: they are a phase, and a product without other taps.
// Implicit GEMM for each group (and phase): the product of weights [o, taps * c] and windows [taps * c, pixels], which
// are never stored.
// a is the weight, [groups, o, taps, c], with channels padded with zeros to a multiple of four. b is packed. out is
// [splits, n, groups, o, d, h, w]. lib/gemm and lib/gemm_tiles list the other flags.
// UNIFORM_TAP: channels are a multiple of the steps of k in workgroup memory, so that these are of one tap, which each
// invocation computes once for all its loads. Otherwise, loads of four channels may be of different taps.
// Each workgroup computes one tile of one split of one group and phase.
// Rounds: a quarter of the steps of k of a split, or fewer; and the taps of a phase.
//#include "lib/conv_tiled"

@group(0) @binding(auto) var<uniform> p: Params;

// The taps that reach the pixels of a phase, along one axis: their number, the first of them in the kernel, and where
// it is in b for the first pixel.
struct Taps {
    count: u32,
    first: u32,
    start: i32,
}

var<private> conv_group: u32;
var<private> phase: vec3<u32>;
var<private> taps: array<Taps, 3>;
// The reciprocals of numbers of taps.
var<private> per_row: f32;
var<private> per_plane: f32;

//#if TRANSPOSED
fn taps_along(phase: u32, kernel: u32, stride: u32, dilation: u32, padding: u32, period: u32) -> Taps {
    let at = i32(phase + padding);
    let end = min(kernel, period);
    var first = 0u;
    while (first < end && (at - i32(first * dilation)) % i32(stride) != 0) {
        first++;
    }
    let count = select(0u, (kernel + period - 1u - first) / period, first < end);
    return Taps(count, min(first, kernel - 1u), (at - i32(first * dilation)) / i32(stride));
}

fn phase_of(batch: u32) -> vec3<u32> {
    let index = batch / p.groups;
    let row = index / p.phases_w;
    return vec3<u32>(row / p.phases_h, row % p.phases_h, index % p.phases_w);
}

fn out_size() -> vec3<u32> {
    return vec3<u32>(p.window.in_d, p.window.in_h, p.window.in_w);
}

// The distance in out between pixels, and in b.
fn out_step() -> vec3<u32> {
    return vec3<u32>(p.window.stride_d, p.window.stride_h, p.window.stride_w);
}

fn b_step() -> vec3<u32> {
    return vec3<u32>(1u);
}
//#else
fn taps_along(phase: u32, kernel: u32, stride: u32, dilation: u32, padding: u32, period: u32) -> Taps {
    return Taps(kernel, 0u, -i32(padding));
}

fn phase_of(batch: u32) -> vec3<u32> {
    return vec3<u32>();
}

fn out_size() -> vec3<u32> {
    return vec3<u32>(p.window.out_d, p.window.out_h, p.window.out_w);
}

fn out_step() -> vec3<u32> {
    return vec3<u32>(1u);
}

fn b_step() -> vec3<u32> {
    return vec3<u32>(p.window.stride_d, p.window.stride_h, p.window.stride_w);
}
//#endif

fn taps_of(phase: vec3<u32>) -> array<Taps, 3> {
    let w = p.window;
    return array<Taps, 3>(
        taps_along(phase.x, w.kernel_d, w.stride_d, w.dilation_d, p.padding_d, p.period_d),
        taps_along(phase.y, w.kernel_h, w.stride_h, w.dilation_h, p.padding_h, p.period_h),
        taps_along(phase.z, w.kernel_w, w.stride_w, w.dilation_w, p.padding_w, p.period_w),
    );
}

fn begin(batch: u32) {
    conv_group = batch % p.groups;
    phase = phase_of(batch);
    taps = taps_of(phase);
    // Units also load where there is nothing to sum.
//#repeat I 3
    taps[I].count = max(taps[I].count, 1u);
//#end
    per_row = 1.0 / f32(taps[2].count);
    per_plane = 1.0 / f32(taps[1].count);
}

// The first step of k of a tile, and the one after the last. k has the channels of each tap.
fn k_range(tile: Tile) -> vec2<u32> {
    let along = taps_of(phase_of(tile.batch));
    return split_range(tile, along[0].count * along[1].count * along[2].count * p.gemm.inner);
}

// Where in k an invocation loads four channels.
struct Position {
    tap: u32,
    channel: u32,
}

fn position(k: u32) -> Position {
    let tap = k / p.gemm.inner;
    return Position(tap, k - tap * p.gemm.inner);
}

fn moved(at: Position, by: Position) -> Position {
    let channel = at.channel + by.channel;
    let wraps = channel >= p.gemm.inner;
    return Position(at.tap + by.tap + u32(wraps), select(channel, channel - p.gemm.inner, wraps));
}

// The index of a tap of the phase along each axis. Past the last one, it is the last one.
fn tap_along(tap: u32) -> vec3<u32> {
    // Quotients without divisions of integers, exact for fewer than 2^19 taps.
    let row = u32((f32(tap) + 0.5) * per_row);
    let w = min(tap - row * taps[2].count, taps[2].count - 1u);
//#if VOLUME
    let d = u32((f32(row) + 0.5) * per_plane);
    return vec3<u32>(min(d, taps[0].count - 1u), min(row - d * taps[1].count, taps[1].count - 1u), w);
//#else
    return vec3<u32>(0u, min(row, taps[1].count - 1u), w);
//#endif
}

// The offset of a tap of the kernel in a row of a.
fn tap_offset(d: u32, h: u32, w: u32) -> u32 {
    return ((d * p.window.kernel_h + h) * p.window.kernel_w + w) * p.gemm.inner;
}

alias Rows = u32;

fn a_rows(row: u32) -> Rows {
    let w = p.window;
    let index = conv_group * p.gemm.m + min(row, p.gemm.m - 1u);
    return tap_offset(index * w.kernel_d + taps[0].first, taps[1].first, taps[2].first);
}

fn load_a(rows: Rows, at: Position) -> Loaded4 {
    let tap = tap_along(at.tap);
    let offset = tap_offset(tap.x * p.period_d, tap.y * p.period_h, tap.z * p.period_w);
    return to_loaded(a[(rows + offset + at.channel) >> 2u]);
}

// A pixel of a phase: those of smaller phases are numbered as if they were as large as the first.
struct Pixel {
    image: u32,
    at: vec3<u32>,
}

fn pixel_of(col: u32) -> Pixel {
    let count = (out_size() + out_step() - 1u) / out_step();
    let row = col / count.z;
    let plane = row / count.y;
    let w = col - row * count.z;
    let h = row - plane * count.y;
//#if VOLUME
    let image = plane / count.x;
    return Pixel(image, vec3<u32>(plane - image * count.x, h, w));
//#else
    return Pixel(plane, vec3<u32>(0u, h, w));
//#endif
}

// The first tap of a pixel, in the first channel.
alias Cols = Place;

fn b_cols(col: u32) -> Cols {
    let pixel = pixel_of(min(col, p.gemm.n - 1u));
    let image = (pixel.image * p.groups + conv_group) * p.channels * b_plane();
    let at = vec3<i32>(pixel.at * b_step()) + vec3<i32>(taps[0].start, taps[1].start, taps[2].start);
    return shifted(Place(image, 0, 0, 0), at.x, at.y, at.z);
}

fn load_b(cols: Cols, at: Position) -> Loaded4 {
    let tap = vec3<i32>(tap_along(at.tap));
    let place = shifted(cols, tap.x * p.tap_d, tap.y * p.tap_h, tap.z * p.tap_w);
    let inside = is_inside(place);
    let channels = vec4<u32>(0u, 1u, 2u, 3u);
//#if UNIFORM_TAP
    let first = select(0u, place.offset + at.channel * b_plane(), inside);
    let i = first + channels * b_plane();
    let valid = vec4<bool>(inside);
//#else
    let first = select(0u, place.offset, inside);
    let i = first + min(at.channel + channels, vec4<u32>(p.channels - 1u)) * b_plane();
    let valid = vec4<bool>(inside) & (at.channel + channels < vec4<u32>(p.channels));
//#endif
    return select(Loaded4(), Loaded4(b[i.x], b[i.y], b[i.z], b[i.w]), valid);
}

//#if UNIFORM_TAP
fn rows_from(rows: Rows, steps: u32) -> Rows {
    return rows + steps;
}

fn cols_from(cols: Cols, steps: u32) -> Cols {
    return Place(cols.offset + steps * b_plane(), cols.d, cols.h, cols.w);
}

fn later(at: Position, steps: u32) -> Position {
    return Position(at.tap, at.channel + steps);
}
//#endif

fn out_row_offset(batch: u32, row: u32) -> u32 {
    let size = out_size();
    return (conv_group * p.gemm.m + row) * (size.x * size.y * size.z);
}

fn out_col_offset(split: u32, col: u32) -> u32 {
    let size = out_size();
    let count = (size + out_step() - 1u) / out_step();
    let images = p.gemm.n / (count.x * count.y * count.z);
    let pixel = pixel_of(col);
    let at = pixel.at * out_step() + phase;
    let rows = (split * images + pixel.image) * p.groups * p.gemm.m;
    return ((rows * size.x + at.x) * size.y + at.y) * size.z + at.z;
}

//#if HOLES
fn is_stored(col: u32) -> bool {
    return all(pixel_of(col).at * out_step() + phase < out_size());
}
//#endif

fn bias_at(row: u32) -> f32 {
    if (p.has_bias == 0u) { return 0.0; }
    return bias[conv_group * p.gemm.m + row];
}

//#if UNITS
//#include "lib/gemm_units"
//#else
//#include "lib/gemm_tiled"
//#endif
