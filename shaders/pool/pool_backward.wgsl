// pool_backward: out[n, c, y, x] = sum over windows (h, w) that contain (y, x) of grad[n, c, h, w] / count
// MAX: the sum over windows with indices[n, c, h, w] = y * width + x, without the division.
// Each element reads the windows that contain it, in order, so no two invocations add to the same element and
// results repeat bit for bit. Each invocation computes one column of LINES lines.
//#include "lib/pool"

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
//#if MAX
@group(0) @binding(auto) var<storage, read> indices: array<i32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

// The first output column whose window ends after a column of x.
fn first_window_w(xx: u32) -> u32 {
//#if ADAPTIVE
    return xx * p.out_w / p.in_w;
//#else
    return first_window(xx + p.padding_w, p.kernel_w, p.dilation_w, p.stride_w);
//#endif
}

// The same for rows.
fn first_window_h(y: u32) -> u32 {
//#if ADAPTIVE
    return y * p.out_h / p.in_h;
//#else
    return first_window(y + p.padding_h, p.kernel_h, p.dilation_h, p.stride_h);
//#endif
}

// `padded` is a coordinate in the padded input.
fn first_window(padded: u32, kernel: u32, dilation: u32, stride: u32) -> u32 {
    let extent = (kernel - 1u) * dilation + 1u;
    return select(0u, (padded - extent) / stride + 1u, padded >= extent);
}

// The gradient of an element, from the windows of the plane of grad at `base`.
fn grad_of(y: u32, xx: u32, first_w: u32, base: u32) -> f32 {
    let first_h = first_window_h(y);
    var sum = 0.0;
//#if ADAPTIVE
    // The starts and the ends of the windows ascend, so the windows that contain an element are consecutive.
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
    for (var h = first_h; h < p.out_h && h * p.stride_h <= y + p.padding_h; h++) {
        for (var w = first_w; w < p.out_w && w * p.stride_w <= xx + p.padding_w; w++) {
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

fn invocation(i: u32) {
    let xx = i % p.in_w;
    let first_w = first_window_w(xx);
    let first = i / p.in_w * LINES;
    var y = first % p.in_h;
    var base = first / p.in_h * p.out_h * p.out_w;
    for (var line = first; line < min(first + LINES, p.lines); line++) {
        out[line * p.in_w + xx] = grad_of(y, xx, first_w, base);
        y++;
        if (y == p.in_h) {
            y = 0u;
            base += p.out_h * p.out_w;
        }
    }
}
//#include "lib/invocation"
