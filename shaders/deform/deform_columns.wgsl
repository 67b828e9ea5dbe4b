// deform_columns: columns[c, t, n, pixel] = mask * x[n, c] at the position that tap t of the pixel samples.
// Between elements x is interpolated bilinearly. The product of weight and columns is the convolution.
// All are packed. lib/deform has the shapes and the flag MASK.
// Each invocation computes one tap of one output pixel, for all channels that share its offset.
//#include "lib/deform"

@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> columns: array<f32>;
//#include "lib/bilinear"

fn invocation(i: u32) {
    let area = p.out_h * p.out_w;
    let taps = p.kernel_h * p.kernel_w;
    let tap_plane = i / area;
    let pixel = i % area;
    let image = tap_plane / taps / p.offset_groups;
    let group_channels = p.channels / p.offset_groups;
    let first_channel = tap_plane / taps % p.offset_groups * group_channels;
    let position = sample_position(tap_plane, pixel);
    let inside = is_inside(position);
    let scale = mask_at(tap_plane, pixel);
    for (var c = first_channel; c < first_channel + group_channels; c++) {
        var v = 0.0;
        if (inside) {
            v = dot(bilinear_weights(position), neighbours(image * p.channels + c, position));
        }
        columns[column_offset(c, tap_plane % taps, image) + pixel] = scale * v;
    }
}
//#include "lib/invocation"
