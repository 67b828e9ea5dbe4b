// deform_offset_backward: for the samples of the channels c that share an offset,
//   offset_grad = mask * sum over c of columns_grad[c] * derivative of sample[c] by row and column,
//   mask_grad = sum over c of columns_grad[c] * sample[c].
// The shapes are those of offset and mask.
// Each invocation computes one tap of one pixel.
//#include "lib/deform"
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> columns_grad: array<f32>;
@group(0) @binding(auto) var<storage, read_write> offset_grad: array<f32>;
//#if MASK
@group(0) @binding(auto) var<storage, read_write> mask_grad: array<f32>;
//#endif
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
    var slope = vec2<f32>();
    var value = 0.0;
    if (is_inside(at)) {
        let fraction = at - floor(at);
        for (var c = first; c < first + group_channels; c++) {
            let v = neighbours(image * p.channels + c, at);
            let grad = columns_grad[column_offset(c, line % taps, image) + pixel];
            let down = mix(v.z - v.x, v.w - v.y, fraction.y);
            let right = mix(v.y - v.x, v.w - v.z, fraction.x);
            slope += grad * vec2<f32>(down, right);
            value += grad * dot(bilinear_weights(at), v);
        }
    }
    slope *= mask_at(line, pixel);
    let o = line * 2u * area + pixel;
    offset_grad[o] = slope.x;
    offset_grad[o + area] = slope.y;
//#if MASK
    mask_grad[i] = value;
//#endif
}
//#include "lib/invocation"
