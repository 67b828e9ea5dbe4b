// pool2d_backward: out[n, c, y, x] = the sum of what the windows over this pixel pass back: all of grad where
// the pixel was the maximum (MAX), else grad / count. Each pixel asks its windows, so nothing is added twice
// at once and the order is fixed. Each invocation makes one column of LINES lines.
//#include "lib/grid"
//#include "lib/pool"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
//#if MAX
@group(0) @binding(auto) var<storage, read> indices: array<i32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

// The windows over a column start at this one.
fn first_window_w(xx: u32) -> u32 {
//#if ADAPTIVE
    return xx * p.out_w / p.in_w;
//#else
    return first_window(xx + p.pad_w, p.kernel_w, p.dilation_w, p.stride_w);
//#endif
}

fn first_window_h(y: u32) -> u32 {
//#if ADAPTIVE
    return y * p.out_h / p.in_h;
//#else
    return first_window(y + p.pad_h, p.kernel_h, p.dilation_h, p.stride_h);
//#endif
}

fn first_window(padded: u32, kernel: u32, dilation: u32, stride: u32) -> u32 {
    let reach = (kernel - 1u) * dilation + 1u;
    return select(0u, (padded - reach) / stride + 1u, padded >= reach);
}

// What the windows of an image, whose first output is `base`, pass back to a pixel.
fn passed_back(y: u32, xx: u32, first_w: u32, base: u32) -> f32 {
    let first_h = first_window_h(y);
    var sum = 0.0;
//#if ADAPTIVE
    // Windows start and end in order, so those over a pixel are neighbours.
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
    for (var h = first_h; h < p.out_h && h * p.stride_h <= y + p.pad_h; h++) {
        for (var w = first_w; w < p.out_w && w * p.stride_w <= xx + p.pad_w; w++) {
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
    return sum;
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    let xx = i % p.in_w;
    let first_w = first_window_w(xx);
    let first = i / p.in_w * LINES;
    var y = first % p.in_h;
    var base = first / p.in_h * p.out_h * p.out_w;
    for (var line = first; line < min(first + LINES, p.lines); line++) {
        out[line * p.in_w + xx] = passed_back(y, xx, first_w, base);
        y++;
        if (y == p.in_h) {
            y = 0u;
            base += p.out_h * p.out_w;
        }
    }
}
