// grid_sample: out[n, c, y, x] = the image in[n, c] at the place grid[n, y, x] = (x, y), where -1 and 1 are its ends:
// the nearest pixel (NEAREST), by cubic convolution of 4 x 4 (BICUBIC), or else on the plane between 2 x 2.
// A place that is no number is read as outside of the image, or as its first pixel.
//#include "lib/grid"

const ZEROS: u32 = 0u;
const BORDER: u32 = 1u;

struct Params {
    len: u32,
    channels: u32,
    in_h: u32,
    in_w: u32,
    out_h: u32,
    out_w: u32,
    // What lies outside: ZEROS, BORDER, else the image's reflection.
    padding: u32,
    // How far the ends of the image lie outside of the centres of its outermost pixels.
    margin: f32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> grid: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

// From one end of an axis to the other, in pixels.
fn span(size: u32) -> f32 {
    return f32(size) - 1.0 + 2.0 * p.margin;
}

// The place -1 to 1 in pixels, which have their centres at whole numbers.
fn pixels(place: f32, size: u32) -> f32 {
    return (place + 1.0) * 0.5 * span(size) - p.margin;
}

fn limit(at: f32, low: f32, high: f32) -> f32 {
    if (is_nan(at)) { return low; }
    return clamp(at, low, high);
}

// Folds an axis back at its ends, over and over.
fn reflect_ends(at: f32, size: u32) -> f32 {
    let whole = span(size);
    if (whole == 0.0) { return 0.0; }
    let far = abs(at + p.margin);
    let turns = floor(far / whole);
    let rest = far - turns * whole;
    let back = turns - 2.0 * floor(0.5 * turns) == 1.0;
    return select(rest, whole - rest, back) - p.margin;
}

// Where a place is read: inside, or so little outside that all of a filter's taps are outside too.
fn bound(at: f32, size: u32) -> f32 {
    let last = f32(size) - 1.0;
    if (p.padding == ZEROS) { return limit(at, -3.0, last + 3.0); }
    if (p.padding == BORDER) { return limit(at, 0.0, last); }
    return limit(reflect_ends(at, size), 0.0, last);
}

// The pixel of an image, zero outside.
fn pixel(image: u32, row: f32, col: f32) -> f32 {
    let r = i32(row);
    let c = i32(col);
    if (r < 0 || c < 0 || u32(r) >= p.in_h || u32(c) >= p.in_w) { return 0.0; }
    return x[(image * p.in_h + u32(r)) * p.in_w + u32(c)];
}

//#if BICUBIC
// The weight of a pixel at this distance (R. Keys, 1981), with a = -3/4.
fn cubic(distance: f32) -> f32 {
    let d = abs(distance);
    if (d < 1.0) { return (1.25 * d - 2.25) * d * d + 1.0; }
    return ((-0.75 * d + 3.75) * d - 6.0) * d + 3.0;
}
//#endif

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
    let area = p.out_h * p.out_w;
    let image = i / area;
    let place = 2u * (image / p.channels * area + i % area);
    let col = pixels(grid[place], p.in_w);
    let row = pixels(grid[place + 1u], p.in_h);
//#if NEAREST
    out[i] = pixel(image, round(bound(row, p.in_h)), round(bound(col, p.in_w)));
//#else
    var sum = 0.0;
//#if BICUBIC
    // Each tap is bound on its own: the filter bends around the ends.
    let above = floor(row);
    let left = floor(col);
    for (var j = -1.0; j <= 2.0; j += 1.0) {
        let r = bound(above + j, p.in_h);
        var part = 0.0;
        for (var k = -1.0; k <= 2.0; k += 1.0) {
            part += cubic(col - left - k) * pixel(image, r, bound(left + k, p.in_w));
        }
        sum += cubic(row - above - j) * part;
    }
//#else
    let r = bound(row, p.in_h);
    let c = bound(col, p.in_w);
    let above = floor(r);
    let left = floor(c);
    let b = r - above;
    let a = c - left;
    sum += (1.0 - b) * (1.0 - a) * pixel(image, above, left);
    sum += (1.0 - b) * a * pixel(image, above, left + 1.0);
    sum += b * (1.0 - a) * pixel(image, above + 1.0, left);
    sum += b * a * pixel(image, above + 1.0, left + 1.0);
//#endif
    out[i] = sum;
//#endif
}
//#use "lib/math"
