// pool2d_backward: out[n, c, y, x] = the sum of what the windows over this pixel pass back: all of grad where
// the pixel was the maximum (MAX), else grad / count. Each pixel asks its windows, so nothing is added twice
// at once and the order is fixed.
//#include "lib/grid"
//#include "lib/pool"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
//#if MAX
@group(0) @binding(auto) var<storage, read> indices: array<i32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
    let xx = i % p.in_w;
    let y = i / p.in_w % p.in_h;
    let base = i / (p.in_w * p.in_h) * p.out_h * p.out_w;
    var sum = 0.0;
//#if ADAPTIVE
    // Windows start and end in order, so those over a pixel are neighbours.
    let first_h = y * p.out_h / p.in_h;
    let first_w = xx * p.out_w / p.in_w;
    for (var h = first_h; h < p.out_h && window_start(h, p.in_h, p.out_h) <= y; h++) {
        let rows = window_end(h, p.in_h, p.out_h) - window_start(h, p.in_h, p.out_h);
        if (window_end(h, p.in_h, p.out_h) <= y) { continue; }
        for (var w = first_w; w < p.out_w && window_start(w, p.in_w, p.out_w) <= xx; w++) {
            let cols = window_end(w, p.in_w, p.out_w) - window_start(w, p.in_w, p.out_w);
            if (window_end(w, p.in_w, p.out_w) <= xx) { continue; }
            sum += grad[base + h * p.out_w + w] / f32(rows * cols);
        }
    }
//#else
    let reach_h = (p.kernel_h - 1u) * p.dilation_h + 1u;
    let reach_w = (p.kernel_w - 1u) * p.dilation_w + 1u;
    // The first window that reaches this row or column.
    let py = y + p.pad_h;
    let px = xx + p.pad_w;
    let first_h = select(0u, (py - reach_h) / p.stride_h + 1u, py >= reach_h);
    let first_w = select(0u, (px - reach_w) / p.stride_w + 1u, px >= reach_w);
    for (var h = first_h; h < p.out_h && h * p.stride_h <= py; h++) {
        for (var w = first_w; w < p.out_w && w * p.stride_w <= px; w++) {
            let o = base + h * p.out_w + w;
//#if MAX
            if (indices[o] == i32(y * p.in_w + xx)) {
                sum += grad[o];
            }
//#else
            sum += grad[o] / window_count(h, w);
//#endif
        }
    }
//#endif
    out[i] = sum;
}
