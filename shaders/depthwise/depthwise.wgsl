// depthwise: out[n, c, d, h, w] = bias[c] + sum over i, j, k of
//   weight[c, i, j, k] * padded[n, g, d*stride + i*dilation, h*stride + j*dilation, w*stride + k*dilation],
// for the channels c of group g, which has one input channel. padded is x padded with zeros, and not stored.
// x, weight and out are packed.
// SPREAD: there are zeros between the pixels of x too.
// Each invocation computes one column of ROWS rows of a plane, and loads a weight once for all of them.
// Rounds: the taps and ROWS.
//#include "lib/depthwise"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> weight: array<f32>;
// The layout requires a binding; without a bias it is weight, and not read.
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

fn invocation(i: u32) {
    let window = p.window;
    let w = i % window.out_w;
    let row_block = i / window.out_w;
    let row_blocks = (window.out_h + ROWS - 1u) / ROWS;
    let h = row_block % row_blocks * ROWS;
    let plane = row_block / row_blocks;
    let d = plane % window.out_d;
    let channel = plane / window.out_d % p.channels;
    // The first plane of channel g in x.
    let x_plane = plane / window.out_d / p.multiplier * window.in_d;
    let taps = window.kernel_d * window.kernel_h * window.kernel_w;
    // The first input row of each output row, in the padded input.
    let rows = (vec4<u32>(h) + vec4<u32>(0u, 1u, 2u, 3u)) * window.stride_h;
    var sum = vec4<f32>(0.0);
    if (p.has_bias != 0u) {
        sum = vec4<f32>(bias[channel]);
    }
    for (var tap = 0u; tap < taps; tap++) {
        let kernel_row = tap / window.kernel_w;
        let front = kernel_row / window.kernel_h * window.dilation_d - p.start_d;
        let top = kernel_row % window.kernel_h * window.dilation_h - p.start_h;
        let left = tap % window.kernel_w * window.dilation_w - p.start_w;
        let x_d = x_index(d * window.stride_d + front, p.step_d, window.in_d);
        let x_w = x_index(w * window.stride_w + left, p.step_w, window.in_w);
        let tap_weight = weight[channel * taps + tap];
//#repeat I ROWS
        {
            let x_h = x_index(rows[I] + top, p.step_h, window.in_h);
            let inside = max(max(x_d, x_h), x_w) != OUTSIDE;
            let value = x[select(0u, ((x_plane + x_d) * window.in_h + x_h) * window.in_w + x_w, inside)];
            sum[I] = fma(select(0.0, value, inside), tap_weight, sum[I]);
        }
//#end
    }
    for (var r = 0u; r < min(ROWS, window.out_h - h); r++) {
        out[(plane * window.out_h + h + r) * window.out_w + w] = sum[r];
    }
}
//#include "lib/invocation"
