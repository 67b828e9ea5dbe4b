// grid_sample: out[n, c, i, j] = the plane x[n, c] at the coordinates (x, y) = grid[n, i, j], where -1 and 1
// are the ends of its axes. x is [n, channels, in_h, in_w], grid [n, out_h, out_w, 2]; all are packed.
// NEAREST: the nearest pixel. BICUBIC: cubic convolution of 4 x 4 pixels. Otherwise 2 x 2 pixels, bilinearly.
// A NaN coordinate is outside the plane with the padding ZEROS; otherwise it is the first row or column.
// Each invocation computes one element.

// Values of `padding`.
const ZEROS: u32 = 0u;
const BORDER: u32 = 1u;

struct Params {
    // Elements of out.
    count: u32,
    channels: u32,
    in_h: u32,
    in_w: u32,
    out_h: u32,
    out_w: u32,
    // What a sample outside the plane reads: ZEROS, BORDER (the nearest pixel), or else its reflection.
    padding: u32,
    // Distance in pixels from the centre of an outermost pixel to the end of the axis: 0 or 0.5.
    margin: f32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> grid: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

// The distance between the ends of an axis, in pixels.
fn extent(size: u32) -> f32 {
    return f32(size) - 1.0 + 2.0 * p.margin;
}

// The position of a coordinate in pixels, whose centres are at whole numbers.
fn unnormalize(coordinate: f32, size: u32) -> f32 {
    return (coordinate + 1.0) * 0.5 * extent(size) - p.margin;
}

// Clamps; NaN becomes `low`.
fn clip(position: f32, low: f32, high: f32) -> f32 {
    if (is_nan(position)) { return low; }
    return clamp(position, low, high);
}

// Reflects a position at the ends of its axis until it is inside.
fn reflect_at_ends(position: f32, size: u32) -> f32 {
    let length = extent(size);
    if (length == 0.0) { return 0.0; }
    let distance = abs(position + p.margin);
    let reflections = floor(distance / length);
    let rest = distance - reflections * length;
    let backwards = reflections - 2.0 * floor(0.5 * reflections) == 1.0;
    return select(rest, length - rest, backwards) - p.margin;
}

// The position to read instead: inside the plane or, with ZEROS, at most 3 pixels outside, where every tap is
// outside too.
fn apply_padding(position: f32, size: u32) -> f32 {
    let last = f32(size) - 1.0;
    if (p.padding == ZEROS) { return clip(position, -3.0, last + 3.0); }
    if (p.padding == BORDER) { return clip(position, 0.0, last); }
    return clip(reflect_at_ends(position, size), 0.0, last);
}

// A pixel of a plane; zero outside.
fn pixel(plane: u32, row: f32, col: f32) -> f32 {
    let r = i32(row);
    let c = i32(col);
    if (r < 0 || c < 0 || u32(r) >= p.in_h || u32(c) >= p.in_w) { return 0.0; }
    return x[(plane * p.in_h + u32(r)) * p.in_w + u32(c)];
}

//#if BICUBIC
// The distance of a position from the pixel before it; zero if the position is not finite.
fn fraction(position: f32) -> f32 {
    if (is_nan(position) || is_inf(position)) { return 0.0; }
    return position - floor(position);
}

// The weight of a pixel by its distance (R. Keys, 1981), with a = -3/4.
fn cubic(distance: f32) -> f32 {
    let d = abs(distance);
    if (d < 1.0) { return (1.25 * d - 2.25) * d * d + 1.0; }
    return ((-0.75 * d + 3.75) * d - 6.0) * d + 3.0;
}
//#endif

fn invocation(i: u32) {
    let area = p.out_h * p.out_w;
    let plane = i / area;
    let coordinates = 2u * (plane / p.channels * area + i % area);
    let col = unnormalize(grid[coordinates], p.in_w);
    let row = unnormalize(grid[coordinates + 1u], p.in_h);
//#if NEAREST
    out[i] = pixel(plane, round(apply_padding(row, p.in_h)), round(apply_padding(col, p.in_w)));
//#else
    var sum = 0.0;
//#if BICUBIC
    // The padding applies to each tap, not to the position of the sample.
    let above = floor(row);
    let left = floor(col);
    let down = fraction(row);
    let right = fraction(col);
    for (var j = -1.0; j <= 2.0; j += 1.0) {
        let r = apply_padding(above + j, p.in_h);
        var row_sum = 0.0;
        for (var k = -1.0; k <= 2.0; k += 1.0) {
            row_sum += cubic(right - k) * pixel(plane, r, apply_padding(left + k, p.in_w));
        }
        sum += cubic(down - j) * row_sum;
    }
//#else
    let r = apply_padding(row, p.in_h);
    let c = apply_padding(col, p.in_w);
    let above = floor(r);
    let left = floor(c);
    let down = r - above;
    let right = c - left;
    sum += (1.0 - down) * (1.0 - right) * pixel(plane, above, left);
    sum += (1.0 - down) * right * pixel(plane, above, left + 1.0);
    sum += down * (1.0 - right) * pixel(plane, above + 1.0, left);
    sum += down * right * pixel(plane, above + 1.0, left + 1.0);
//#endif
    out[i] = sum;
//#endif
}
//#include "lib/invocation"
//#use "lib/math"
