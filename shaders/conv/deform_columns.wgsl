// deform_columns: columns[c, t, n, pixel] = mask * x[n, c] where tap t of the pixel's window samples it, by bilinear
// interpolation. The product of the weight and the columns is the convolution.
// An invocation has one tap and pixel, for all channels that share its offset.
//#include "lib/grid"
//#include "lib/deform"
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> columns: array<f32>;
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
    let inside = is_inside(at);
    let scale = mask_at(line, pixel);
    for (var c = first; c < first + members; c++) {
        var v = 0.0;
        if (inside) {
            v = dot(shares(at), neighbours(image * p.channels + c, at));
        }
        columns[column(c, line % taps, image) + pixel] = scale * v;
    }
}
