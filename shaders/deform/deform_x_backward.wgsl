// deform_x_backward: out[n, c, row, col] = sum over t, pixel of columns_grad[c, t, n, pixel] * mask * weight,
// where weight is the bilinear weight of element (row, col) in the sample of tap t of the output pixel.
// All are packed. lib/deform has the shapes and the flag MASK.
// Each invocation computes a band of rows of one plane and walks the taps in order, in one launch or, because its
// loop must end, in several of which the first clears the band. No two invocations add to
// the same element, and the rounding does not depend on the number of bands.
// Rounds: the samples of a launch, and in the first the elements of a band.
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
    if (p.first_sample == 0u) {
        for (var e = base + top * p.in_w; e < base + bottom * p.in_w; e++) {
            out[e] = 0.0;
        }
    }
    let taps = p.kernel_h * p.kernel_w;
    let image = plane / p.channels;
    let c = plane % p.channels;
    let first_plane = (image * p.offset_groups + c / (p.channels / p.offset_groups)) * taps;
    let pixels = p.out_h * p.out_w;
    var t = p.first_sample / pixels;
    var pixel = p.first_sample - t * pixels;
    for (var sample = p.first_sample; sample < p.end_sample; sample++) {
        let position = sample_position(first_plane + t, pixel);
        let row = i32(floor(position.x));
        let col = i32(floor(position.y));
        if (is_inside(position) && row + 1 >= i32(top) && row < i32(bottom)) {
            let grad = columns_grad[column_offset(c, t, image) + pixel] * mask_at(first_plane + t, pixel);
            let weighted = grad * bilinear_weights(position);
            add(row, col, weighted.x);
            add(row, col + 1, weighted.y);
            add(row + 1, col, weighted.z);
            add(row + 1, col + 1, weighted.w);
        }
        pixel++;
        if (pixel == pixels) {
            pixel = 0u;
            t++;
        }
    }
}
//#include "lib/invocation"
