// depthwise: out[n, c, d, h, w] = bias[c] + sum over i, j, k of x[n, g, d*stride + i*dilation, ..] * weight[c, i, j, k]
// for the channels c of group g, which has one input channel. x is padded with zeros; SPREAD: also between
// its pixels. Each invocation computes one column of four rows of a plane, so that a weight is loaded once
// for all of them.
//#include "lib/depthwise"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> weight: array<f32>;
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

fn invocation(i: u32) {
    let g = p.window;
    let w = i % g.out_w;
    let row_block = i / g.out_w;
    let row_blocks = (g.out_h + ROWS - 1u) / ROWS;
    let h = row_block % row_blocks * ROWS;
    let plane = row_block / row_blocks;
    let d = plane % g.out_d;
    let channel = plane / g.out_d % p.channels;
    let volume = plane / g.out_d / p.multiplier * g.in_d;
    let taps = g.kernel_d * g.kernel_h * g.kernel_w;
    let rows = (vec4<u32>(h) + vec4<u32>(0u, 1u, 2u, 3u)) * g.stride_h;
    var sum = vec4<f32>(0.0);
    if (p.has_bias != 0u) {
        sum = vec4<f32>(bias[channel]);
    }
    for (var tap = 0u; tap < taps; tap++) {
        let line = tap / g.kernel_w;
        let z = source(d * g.stride_d + line / g.kernel_h * g.dilation_d - p.start_d, p.step_d, g.in_d);
        let xx = source(w * g.stride_w + tap % g.kernel_w * g.dilation_w - p.start_w, p.step_w, g.in_w);
        let top = line % g.kernel_h * g.dilation_h - p.start_h;
        let factor = weight[channel * taps + tap];
//#repeat I ROWS
        {
            let y = source(rows[I] + top, p.step_h, g.in_h);
            let inside = max(max(z, y), xx) != OUTSIDE;
            let value = x[select(0u, ((volume + z) * g.in_h + y) * g.in_w + xx, inside)];
            sum[I] = fma(select(0.0, value, inside), factor, sum[I]);
        }
//#end
    }
    for (var r = 0u; r < min(ROWS, g.out_h - h); r++) {
        out[(plane * g.out_h + h + r) * g.out_w + w] = sum[r];
    }
}
//#include "lib/invocation"
