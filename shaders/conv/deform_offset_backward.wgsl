// deform_offset_backward: the gradients of the offset and of the mask from that of the columns: how the sample changes
// with the position, times the mask, and the sample itself; each summed over the channels that share the offset.
//#include "lib/grid"
//#include "lib/deform"
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> columns_grad: array<f32>;
@group(0) @binding(auto) var<storage, read_write> offset_grad: array<f32>;
//#if MASK
@group(0) @binding(auto) var<storage, read_write> mask_grad: array<f32>;
//#endif
//#include "lib/neighbours"

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
    let area = p.out_h * p.out_w;
    let taps = p.kernel_h * p.kernel_w;
    let line = i / area;
    let pixel = i % area;
    let image = line / taps / p.offset_groups;
    let members = p.channels / p.offset_groups;
    let first = line / taps % p.offset_groups * members;
    let at = position(line, pixel);
    var slope = vec2<f32>();
    var value = 0.0;
    if (is_inside(at)) {
        let past = at - floor(at);
        for (var c = first; c < first + members; c++) {
            let v = neighbours(image * p.channels + c, at);
            let grad = columns_grad[column(c, line % taps, image) + pixel];
            // Down and to the right.
            let change = vec2<f32>(mix(v.z - v.x, v.w - v.y, past.y), mix(v.y - v.x, v.w - v.z, past.x));
            slope += grad * change;
            value += grad * dot(shares(at), v);
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
