// depthwise_weight_backward: out[split, c, i, j, k] = sum over the split's rows (n, d, h) and over w of
//   grad[n, c, d, h, w] * padded[n, g, d*stride + i*dilation, h*stride + j*dilation, w*stride + k*dilation],
// for the channels c of group g, which has one input channel: the gradient of depthwise for its weight.
// padded is x padded with zeros, and not stored. x, grad and out are packed.
// Each invocation computes one split of one weight, row by row.
// Rounds: rows_per_split (out_w + 2).
//#include "lib/depthwise"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

fn invocation(i: u32) {
    let window = p.window;
    let taps = window.kernel_d * window.kernel_h * window.kernel_w;
    let tap = i % taps;
    let channel = i / taps % p.channels;
    let split = i / taps / p.channels;
    let kernel_row = tap / window.kernel_w;
    let front = kernel_row / window.kernel_h * window.dilation_d - p.start_d;
    let top = kernel_row % window.kernel_h * window.dilation_h - p.start_h;
    let left = tap % window.kernel_w * window.dilation_w - p.start_w;
    var sum = 0.0;
    let end = min((split + 1u) * p.rows_per_split, p.images * window.out_d * window.out_h);
    for (var row = split * p.rows_per_split; row < end; row++) {
        let plane = row / window.out_h;
        let x_h = x_index(row % window.out_h * window.stride_h + top, p.step_h, window.in_h);
        let x_d = x_index(plane % window.out_d * window.stride_d + front, p.step_d, window.in_d);
        if (max(x_h, x_d) == OUTSIDE) { continue; }
        // The row-major index of (n, c).
        let image_channel = plane / window.out_d * p.channels + channel;
        let x_start = ((image_channel / p.multiplier * window.in_d + x_d) * window.in_h + x_h) * window.in_w;
        let grad_plane = image_channel * window.out_d + plane % window.out_d;
        let grad_start = (grad_plane * window.out_h + row % window.out_h) * window.out_w;
        var row_sum = 0.0;
        for (var w = 0u; w < window.out_w; w++) {
            let x_w = x_index(w * window.stride_w + left, p.step_w, window.in_w);
            let value = x[x_start + select(0u, x_w, x_w != OUTSIDE)];
            row_sum = fma(select(0.0, value, x_w != OUTSIDE), grad[grad_start + w], row_sum);
        }
        sum += row_sum;
    }
    out[i] = sum;
}
//#include "lib/invocation"
