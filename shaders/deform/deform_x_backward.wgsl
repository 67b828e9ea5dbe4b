// deform_x_backward: out[n, c, row, col] = sum over t, pixel of columns_grad[c, t, n, pixel] * mask * weight,
// where weight is the bilinear weight of element (row, col) in the sample of tap t of the output pixel.
// All are packed. lib/deform has the shapes and the flag MASK.
// Each invocation computes a band of rows of one plane and walks all taps in order. No two invocations add to
// the same element, and the rounding does not depend on the number of bands.
//#include "lib/deform"

@group(0) @binding(auto) var<storage, read> columns_grad: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

// The first row of the band, the end of its rows, and the offset of the plane.
var<private> top: u32;
var<private> bottom: u32;
var<private> base: u32;

// Adds to element (row, col) of the plane if it is in the band.
fn add(row: i32, col: i32, value: f32) {
    // Above or left of the plane a coordinate wraps and is too large.
    if (u32(row) < top || u32(row) >= bottom || u32(col) >= p.in_w) { return; }
    out[base + u32(row) * p.in_w + u32(col)] += value;
}

fn invocation(i: u32) {
    let plane = i / p.bands;
    let rows = (p.in_h + p.bands - 1u) / p.bands;
    top = i % p.bands * rows;
    bottom = min(top + rows, p.in_h);
    base = plane * p.in_h * p.in_w;
    for (var e = base + top * p.in_w; e < base + bottom * p.in_w; e++) {
        out[e] = 0.0;
    }
    let taps = p.kernel_h * p.kernel_w;
    let image = plane / p.channels;
    let c = plane % p.channels;
    let first_plane = (image * p.offset_groups + c / (p.channels / p.offset_groups)) * taps;
    for (var t = 0u; t < taps; t++) {
        for (var pixel = 0u; pixel < p.out_h * p.out_w; pixel++) {
            let position = sample_position(first_plane + t, pixel);
            let row = i32(floor(position.x));
            let col = i32(floor(position.y));
            if (!is_inside(position) || row + 1 < i32(top) || row >= i32(bottom)) { continue; }
            let grad = columns_grad[column_offset(c, t, image) + pixel] * mask_at(first_plane + t, pixel);
            let weighted = grad * bilinear_weights(position);
            add(row, col, weighted.x);
            add(row, col + 1, weighted.y);
            add(row + 1, col, weighted.z);
            add(row + 1, col + 1, weighted.w);
        }
    }
}
//#include "lib/invocation"
