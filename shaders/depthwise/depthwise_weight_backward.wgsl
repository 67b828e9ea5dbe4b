// depthwise_weight_backward: out[part, c, i, j, k] = sum over the part's rows (n, d, h) and over w of
// grad[n, c, d, h, w] * ground[n, g, d*stride + i*dilation, ..], for the channels c of group g, which has one input channel.
// Each invocation sums one part of one weight, row by row.
//#include "lib/grid"
//#include "lib/depthwise"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.count) { return; }
    let taps = p.window.kernel_d * p.window.kernel_h * p.window.kernel_w;
    let tap = i % taps;
    let channel = i / taps % p.channels;
    let part = i / taps / p.channels;
    let line = tap / p.window.kernel_w;
    let front = line / p.window.kernel_h * p.window.dilation_d - p.start_d;
    let top = line % p.window.kernel_h * p.window.dilation_h - p.start_h;
    let left = tap % p.window.kernel_w * p.window.dilation_w - p.start_w;
    var sum = 0.0;
    let end = min((part + 1u) * p.rows_per_part, p.images * p.window.out_d * p.window.out_h);
    for (var row = part * p.rows_per_part; row < end; row++) {
        let plane = row / p.window.out_h;
        let y = source(row % p.window.out_h * p.window.stride_h + top, p.step_h, p.window.in_h);
        let z = source(plane % p.window.out_d * p.window.stride_d + front, p.step_d, p.window.in_d);
        if (max(y, z) == OUTSIDE) { continue; }
        let image = plane / p.window.out_d * p.channels + channel;
        let in_row = ((image / p.multiplier * p.window.in_d + z) * p.window.in_h + y) * p.window.in_w;
        let out_row = ((image * p.window.out_d + plane % p.window.out_d) * p.window.out_h + row % p.window.out_h) * p.window.out_w;
        var of_row = 0.0;
        for (var w = 0u; w < p.window.out_w; w++) {
            let xx = source(w * p.window.stride_w + left, p.step_w, p.window.in_w);
            let value = x[in_row + select(0u, xx, xx != OUTSIDE)];
            of_row = fma(select(0.0, value, xx != OUTSIDE), grad[out_row + w], of_row);
        }
        sum += of_row;
    }
    out[i] = sum;
}
