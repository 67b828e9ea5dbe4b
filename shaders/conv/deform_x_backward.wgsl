// deform_x_backward: the gradient of x from that of the columns: each tap's, shared out to the four elements that it
// sampled. One invocation owns a band of rows of one plane and walks all taps in order, so nothing is added twice
// at once and the rounding is fixed, however many bands there are.
//#include "lib/grid"
//#include "lib/deform"
@group(0) @binding(auto) var<storage, read> columns_grad: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

// The band's rows, from the first to before the last, and where row zero of its plane is.
var<private> top: u32;
var<private> bottom: u32;
var<private> base: u32;

fn add(row: i32, col: i32, value: f32) {
    // Above or left of the plane a coordinate wraps and is too large as well.
    if (u32(row) < top || u32(row) >= bottom || u32(col) >= p.in_w) { return; }
    out[base + u32(row) * p.in_w + u32(col)] += value;
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
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
    let lines = (image * p.offset_groups + c / (p.channels / p.offset_groups)) * taps;
    for (var t = 0u; t < taps; t++) {
        for (var pixel = 0u; pixel < p.out_h * p.out_w; pixel++) {
            let at = position(lines + t, pixel);
            let row = i32(floor(at.x));
            let col = i32(floor(at.y));
            if (!is_inside(at) || row + 1 < i32(top) || row >= i32(bottom)) { continue; }
            let grad = columns_grad[column(c, t, image) + pixel] * mask_at(lines + t, pixel);
            let parts = grad * shares(at);
            add(row, col, parts.x);
            add(row, col + 1, parts.y);
            add(row + 1, col, parts.z);
            add(row + 1, col + 1, parts.w);
        }
    }
}
