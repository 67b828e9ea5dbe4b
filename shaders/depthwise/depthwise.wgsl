// depthwise: out[n, c, d, h, w] = bias[c] + sum over taps i, j, k of ground[n, g, d*stride + i*dilation, ..] * weight[c, i, j, k], for
// the channels c of group g, which has one input channel. The ground is x among zeros; with SPREAD its elements lie apart.
// Each invocation makes one column of LINES rows of a plane, so that a weight is loaded once for all of them.
//#include "lib/grid"
//#include "lib/depthwise"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> weight: array<f32>;
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    let w = i % p.window.out_w;
    let bundle = i / p.window.out_w;
    if (bundle >= p.count) { return; }
    let bundles = (p.window.out_h + LINES - 1u) / LINES;
    let h = bundle % bundles * LINES;
    let plane = bundle / bundles;
    let d = plane % p.window.out_d;
    let channel = plane / p.window.out_d % p.channels;
    let volume = plane / p.window.out_d / p.multiplier * p.window.in_d;
    let taps = p.window.kernel_d * p.window.kernel_h * p.window.kernel_w;
    let rows = (vec4<u32>(h) + vec4<u32>(0u, 1u, 2u, 3u)) * p.window.stride_h;
    var sum = vec4<f32>(0.0);
    if (p.has_bias != 0u) {
        sum = vec4<f32>(bias[channel]);
    }
    for (var tap = 0u; tap < taps; tap++) {
        let line = tap / p.window.kernel_w;
        let z = source(d * p.window.stride_d + line / p.window.kernel_h * p.window.dilation_d - p.start_d, p.step_d, p.window.in_d);
        let xx = source(w * p.window.stride_w + tap % p.window.kernel_w * p.window.dilation_w - p.start_w, p.step_w, p.window.in_w);
        let top = line % p.window.kernel_h * p.window.dilation_h - p.start_h;
        let factor = weight[channel * taps + tap];
//#repeat I LINES
        {
            let y = source(rows[I] + top, p.step_h, p.window.in_h);
            let inside = max(max(z, y), xx) != OUTSIDE;
            let value = x[select(0u, ((volume + z) * p.window.in_h + y) * p.window.in_w + xx, inside)];
            sum[I] = fma(select(0.0, value, inside), factor, sum[I]);
        }
//#end
    }
    for (var r = 0u; r < min(LINES, p.window.out_h - h); r++) {
        out[(plane * p.window.out_h + h + r) * p.window.out_w + w] = sum[r];
    }
}
