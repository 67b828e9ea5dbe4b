// pool2d: out[n, c, h, w] from a window of x[n, c]: the maximum (MAX; INDICES also stores where it is,
// as row * width + column), the average, or the average over an adaptive window (ADAPTIVE). Each invocation makes one column
// of LINES lines: dividing is dear, and so is done once for all of them.
//#include "lib/grid"
//#include "lib/pool"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#if INDICES
@group(0) @binding(auto) var<storage, read_write> indices: array<i32>;
//#endif

fn pool(i: u32, h: u32, w: u32, base: u32) {
//#if ADAPTIVE
    var sum = 0.0;
    let top = window_start(h, p.in_h, p.out_h);
    let bottom = window_end(h, p.in_h, p.out_h);
    let left = window_start(w, p.in_w, p.out_w);
    let right = window_end(w, p.in_w, p.out_w);
    for (var y = top; y < bottom; y++) {
        for (var xx = left; xx < right; xx++) {
            sum += x[base + y * p.in_w + xx];
        }
    }
    out[i] = sum / f32((bottom - top) * (right - left));
//#else
//#if MAX
    var best = -inf();
    var best_at = 0u;
    var found = false;
//#else
    var sum = 0.0;
//#endif
    for (var a = 0u; a < p.kernel_h; a++) {
        // Above or left of the image the coordinate wraps and is too large as well.
        let y = h * p.stride_h + a * p.dilation_h - p.pad_h;
        if (y >= p.in_h) { continue; }
        for (var b = 0u; b < p.kernel_w; b++) {
            let xx = w * p.stride_w + b * p.dilation_w - p.pad_w;
            if (xx >= p.in_w) { continue; }
            let v = x[base + y * p.in_w + xx];
//#if MAX
            if (!found || v > best || is_nan(v)) {
                best = v;
                best_at = y * p.in_w + xx;
                found = true;
            }
//#else
            sum += v;
//#endif
        }
    }
//#if MAX
    out[i] = best;
//#if INDICES
    indices[i] = i32(best_at);
//#endif
//#else
    out[i] = sum / window_count(h, w);
//#endif
//#endif
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    let w = i % p.out_w;
    let first = i / p.out_w * LINES;
    var h = first % p.out_h;
    var base = first / p.out_h * p.in_h * p.in_w;
    for (var line = first; line < min(first + LINES, p.lines); line++) {
        pool(line * p.out_w + w, h, w, base);
        h++;
        if (h == p.out_h) {
            h = 0u;
            base += p.in_h * p.in_w;
        }
    }
}
//#use "lib/math"
