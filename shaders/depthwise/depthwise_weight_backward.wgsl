// depthwise_weight_backward: out[split, c, i, j, k] = sum over the split's rows (n, d, h) and over w of
// grad[n, c, d, h, w] * x[n, g, d*stride + i*dilation, ..] for the channels c of group g, which has one input
// channel. x is padded with zeros. Each invocation computes one split of one weight, row by row.
//#include "lib/depthwise"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

fn invocation(i: u32) {
    let g = p.window;
    let taps = g.kernel_d * g.kernel_h * g.kernel_w;
    let tap = i % taps;
    let channel = i / taps % p.channels;
    let split = i / taps / p.channels;
    let line = tap / g.kernel_w;
    let front = line / g.kernel_h * g.dilation_d - p.start_d;
    let top = line % g.kernel_h * g.dilation_h - p.start_h;
    let left = tap % g.kernel_w * g.dilation_w - p.start_w;
    var sum = 0.0;
    let end = min((split + 1u) * p.rows_per_split, p.images * g.out_d * g.out_h);
    for (var row = split * p.rows_per_split; row < end; row++) {
        let plane = row / g.out_h;
        let y = source(row % g.out_h * g.stride_h + top, p.step_h, g.in_h);
        let z = source(plane % g.out_d * g.stride_d + front, p.step_d, g.in_d);
        if (max(y, z) == OUTSIDE) { continue; }
        let image = plane / g.out_d * p.channels + channel;
        let in_row = ((image / p.multiplier * g.in_d + z) * g.in_h + y) * g.in_w;
        let out_row = ((image * g.out_d + plane % g.out_d) * g.out_h + row % g.out_h) * g.out_w;
        var row_sum = 0.0;
        for (var w = 0u; w < g.out_w; w++) {
            let xx = source(w * g.stride_w + left, p.step_w, g.in_w);
            let value = x[in_row + select(0u, xx, xx != OUTSIDE)];
            row_sum = fma(select(0.0, value, xx != OUTSIDE), grad[out_row + w], row_sum);
        }
        sum += row_sum;
    }
    out[i] = sum;
}
//#include "lib/invocation"
