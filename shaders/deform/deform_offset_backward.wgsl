// deform_offset_backward: for each tap t of each output pixel,
//   offset_grad = mask * sum over c of columns_grad[c, t, n, pixel] * derivative of sample[c],
//   mask_grad = sum over c of columns_grad[c, t, n, pixel] * sample[c],
// where sample[c] is x[n, c] at the position that the tap samples, for the channels c that share an offset.
// The derivatives are by row and by column. offset_grad and mask_grad have the shapes of offset and mask.
// All are packed. lib/deform has the shapes and the flag MASK.
// Each invocation computes one tap of one output pixel.
// Rounds: the channels of an offset group.
//#include "lib/deform"

@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> columns_grad: array<f32>;
@group(0) @binding(auto) var<storage, read_write> offset_grad: array<f32>;
//#if MASK
@group(0) @binding(auto) var<storage, read_write> mask_grad: array<f32>;
//#endif
//#include "lib/bilinear"

fn invocation(i: u32) {
    let s = sample_of(i);
    var position_grad = vec2<f32>();
    var factor_grad = 0.0;
    if (is_inside(s.position)) {
        let fraction = s.position - floor(s.position);
        for (var c = s.first_channel; c < s.end_channel; c++) {
            let v = neighbours(s.image * p.channels + c, s.position);
            let grad = columns_grad[column_offset(c, s.tap, s.image) + s.pixel];
            let down = mix(v.z - v.x, v.w - v.y, fraction.y);
            let right = mix(v.y - v.x, v.w - v.z, fraction.x);
            position_grad += grad * vec2<f32>(down, right);
            factor_grad += grad * dot(bilinear_weights(s.position), v);
        }
    }
    position_grad *= mask_at(s.tap_plane, s.pixel);
    let area = p.out_h * p.out_w;
    let index = s.tap_plane * 2u * area + s.pixel;
    offset_grad[index] = position_grad.x;
    offset_grad[index + area] = position_grad.y;
//#if MASK
    mask_grad[i] = factor_grad;
//#endif
}
//#include "lib/invocation"
