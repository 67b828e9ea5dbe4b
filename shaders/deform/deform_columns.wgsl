// deform_columns: columns[c, t, n, pixel] = mask * x[n, c] at the position of tap t of the pixel's window, by
// bilinear interpolation. The product of the weight and the columns is the convolution.
// Each invocation computes one tap of one pixel, for all channels that share its offset.
//#include "lib/deform"
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> columns: array<f32>;
//#include "lib/bilinear"

fn invocation(i: u32) {
    let area = p.out_h * p.out_w;
    let taps = p.kernel_h * p.kernel_w;
    let line = i / area;
    let pixel = i % area;
    let image = line / taps / p.offset_groups;
    let group_channels = p.channels / p.offset_groups;
    let first = line / taps % p.offset_groups * group_channels;
    let at = sample_position(line, pixel);
    let inside = is_inside(at);
    let scale = mask_at(line, pixel);
    for (var c = first; c < first + group_channels; c++) {
        var v = 0.0;
        if (inside) {
            v = dot(bilinear_weights(at), neighbours(image * p.channels + c, at));
        }
        columns[column_offset(c, line % taps, image) + pixel] = scale * v;
    }
}
//#include "lib/invocation"
