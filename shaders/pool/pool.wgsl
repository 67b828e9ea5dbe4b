// pool: out[n, c, h, w] = maximum or average of x[n, c, row, col] over the window of output pixel (h, w).
// x and out are packed.
// MAX: the maximum; otherwise the average.
// INDICES: also indices[n, c, h, w] = row * in_w + col of the maximum.
// ADAPTIVE: the windows cover the input evenly, and their sizes depend on their positions.
// Each invocation computes one column of LINES lines, so that it divides once for all of them.
// Rounds: for each of LINES, the elements of a window and two for each of its rows.
//#include "lib/pool"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#if INDICES
@group(0) @binding(auto) var<storage, read_write> indices: array<i32>;
//#endif

// Computes out[i] from the window of output pixel (h, w), in the plane of x that starts at `base`.
//#if MAX
fn reduce_window(i: u32, h: u32, w: u32, base: u32) {
    var best = -inf();
    var best_index = 0u;
    var found = false;
    for (var kernel_row = 0u; kernel_row < p.kernel_h; kernel_row++) {
        // Above or left of the plane a coordinate wraps and is too large.
        let row = h * p.stride_h + kernel_row * p.dilation_h - p.padding_h;
        if (row >= p.in_h) { continue; }
        for (var kernel_col = 0u; kernel_col < p.kernel_w; kernel_col++) {
            let col = w * p.stride_w + kernel_col * p.dilation_w - p.padding_w;
            if (col >= p.in_w) { continue; }
            let v = x[base + row * p.in_w + col];
            if (!found || v > best || is_nan(v)) {
                best = v;
                best_index = row * p.in_w + col;
                found = true;
            }
        }
    }
    out[i] = best;
//#if INDICES
    indices[i] = i32(best_index);
//#endif
}
//#else
fn reduce_window(i: u32, h: u32, w: u32, base: u32) {
    var sum = 0.0;
//#if ADAPTIVE
    let top = window_start(h, p.in_h, p.out_h);
    let bottom = window_end(h, p.in_h, p.out_h);
    let left = window_start(w, p.in_w, p.out_w);
    let right = window_end(w, p.in_w, p.out_w);
    for (var row = top; row < bottom; row++) {
        for (var col = left; col < right; col++) {
            sum += x[base + row * p.in_w + col];
        }
    }
    out[i] = sum / f32((bottom - top) * (right - left));
//#else
    for (var kernel_row = 0u; kernel_row < p.kernel_h; kernel_row++) {
        // Above or left of the plane a coordinate wraps and is too large.
        let row = h * p.stride_h + kernel_row * p.dilation_h - p.padding_h;
        if (row >= p.in_h) { continue; }
        for (var kernel_col = 0u; kernel_col < p.kernel_w; kernel_col++) {
            let col = w * p.stride_w + kernel_col * p.dilation_w - p.padding_w;
            if (col >= p.in_w) { continue; }
            sum += x[base + row * p.in_w + col];
        }
    }
    out[i] = sum / window_count(h, w);
//#endif
}
//#endif

fn invocation(i: u32) {
    let w = i % p.out_w;
    let first = i / p.out_w * LINES;
    var h = first % p.out_h;
    var base = first / p.out_h * p.in_h * p.in_w;
    for (var line = first; line < min(first + LINES, p.lines); line++) {
        reduce_window(line * p.out_w + w, h, w, base);
        h++;
        if (h == p.out_h) {
            h = 0u;
            base += p.in_h * p.in_w;
        }
    }
}
//#include "lib/invocation"
//#use "lib/math"
