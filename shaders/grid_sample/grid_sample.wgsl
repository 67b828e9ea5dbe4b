// grid_sample: out[n, c, i, j] = image x[n, c] at the coordinates grid[n, i, j] = (x, y), where -1 and 1 are
// its ends. NEAREST: the nearest pixel; BICUBIC: cubic convolution of 4 x 4 pixels; otherwise bilinear
// interpolation of 2 x 2. A NaN coordinate is outside the image with ZEROS, else the first row or column.

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
    // What a sample outside the image reads: ZEROS, BORDER, or its reflection.
    padding: u32,
    // Distance in pixels from the centre of an outermost pixel to the end of the image.
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

// Converts a coordinate from -1..1 to pixels, whose centres are at whole numbers.
fn unnormalize(coordinate: f32, size: u32) -> f32 {
    return (coordinate + 1.0) * 0.5 * extent(size) - p.margin;
}

// Clamps; NaN becomes `low`.
fn clip(at: f32, low: f32, high: f32) -> f32 {
    if (is_nan(at)) { return low; }
    return clamp(at, low, high);
}

// Reflects a coordinate at the ends of its axis until it is inside.
fn reflect_at_ends(at: f32, size: u32) -> f32 {
    let span = extent(size);
    if (span == 0.0) { return 0.0; }
    let distance = abs(at + p.margin);
    let reflections = floor(distance / span);
    let rest = distance - reflections * span;
    let backwards = reflections - 2.0 * floor(0.5 * reflections) == 1.0;
    return select(rest, span - rest, backwards) - p.margin;
}

// The coordinate to read instead of `at`: inside the image or, with ZEROS, at most 3 pixels outside, where
// every tap is outside too.
fn padded(at: f32, size: u32) -> f32 {
    let last = f32(size) - 1.0;
    if (p.padding == ZEROS) { return clip(at, -3.0, last + 3.0); }
    if (p.padding == BORDER) { return clip(at, 0.0, last); }
    return clip(reflect_at_ends(at, size), 0.0, last);
}

// A pixel of an image; zero outside.
fn pixel(image: u32, row: f32, col: f32) -> f32 {
    let r = i32(row);
    let c = i32(col);
    if (r < 0 || c < 0 || u32(r) >= p.in_h || u32(c) >= p.in_w) { return 0.0; }
    return x[(image * p.in_h + u32(r)) * p.in_w + u32(c)];
}

//#if BICUBIC
// The weight of a pixel by its distance (R. Keys, 1981), with a = -3/4.
fn cubic(distance: f32) -> f32 {
    let d = abs(distance);
    if (d < 1.0) { return (1.25 * d - 2.25) * d * d + 1.0; }
    return ((-0.75 * d + 3.75) * d - 6.0) * d + 3.0;
}
//#endif

fn invocation(i: u32) {
    let area = p.out_h * p.out_w;
    let image = i / area;
    let at = 2u * (image / p.channels * area + i % area);
    let col = unnormalize(grid[at], p.in_w);
    let row = unnormalize(grid[at + 1u], p.in_h);
//#if NEAREST
    out[i] = pixel(image, round(padded(row, p.in_h)), round(padded(col, p.in_w)));
//#else
    var sum = 0.0;
//#if BICUBIC
    // Padding applies to each tap, not to the sample.
    let above = floor(row);
    let left = floor(col);
    for (var j = -1.0; j <= 2.0; j += 1.0) {
        let r = padded(above + j, p.in_h);
        var row_sum = 0.0;
        for (var k = -1.0; k <= 2.0; k += 1.0) {
            row_sum += cubic(col - left - k) * pixel(image, r, padded(left + k, p.in_w));
        }
        sum += cubic(row - above - j) * row_sum;
    }
//#else
    let r = padded(row, p.in_h);
    let c = padded(col, p.in_w);
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
//#include "lib/invocation"
//#use "lib/math"
