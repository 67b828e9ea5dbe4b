// deform_columns: columns[c, t, n, pixel] = mask * x[n, c] at the position that tap t of the pixel samples.
// Between elements x is interpolated bilinearly. The product of weight and columns is the convolution.
// All are packed. lib/deform has the shapes and the flag MASK.
// Each invocation computes one tap of one output pixel, for all channels that share its offset.
// Rounds: the channels of an offset group.
//#include "lib/deform"

@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> columns: array<f32>;
//#include "lib/bilinear"

fn invocation(i: u32) {
    let s = sample_of(i);
    let inside = is_inside(s.position);
    let scale = mask_at(s.tap_plane, s.pixel);
    for (var c = s.first_channel; c < s.end_channel; c++) {
        var v = 0.0;
        if (inside) {
            v = dot(bilinear_weights(s.position), neighbours(s.image * p.channels + c, s.position));
        }
        columns[column_offset(c, s.tap, s.image) + s.pixel] = scale * v;
    }
}
//#include "lib/invocation"
