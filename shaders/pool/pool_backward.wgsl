// pool_backward: out[n, c, row, col] = sum of grad[n, c, h, w] / count over the output pixels (h, w) whose
// windows contain (row, col). count is the divisor of the window's average. All are packed.
// MAX: the sum of grad[n, c, h, w] over the windows with indices[n, c, h, w] = row * in_w + col.
// ADAPTIVE: the windows cover the input evenly, and their sizes depend on their positions.
// DISJOINT: an element is in one window at most, and the windows are not ADAPTIVE.
// Each invocation computes one column of LINES lines; with QUADS, four neighbours in memory, in whatever
// lines they are. It adds the windows of an element in order, so results repeat bit for bit.
// Rounds: for each of LINES or of four, the windows that contain an element.
//#include "lib/pool"
//#if QUADS
//#include "lib/vec4"
//#endif

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> grad: array<f32>;
//#if MAX
@group(0) @binding(auto) var<storage, read> indices: array<i32>;
//#endif
//#if QUADS
@group(0) @binding(auto) var<storage, read_write> out: array<Words4>;
//#else
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#endif

// The first output column whose window ends after column `col` of x.
fn first_window_w(col: u32) -> u32 {
//#if ADAPTIVE
    return col * (p.out_w / p.in_w) + scaled(col, p.out_w % p.in_w, p.in_w).x;
//#else
    return first_window(col + p.padding_w, p.kernel_w, p.dilation_w, p.stride_w);
//#endif
}

// The same for rows.
fn first_window_h(row: u32) -> u32 {
//#if ADAPTIVE
    return row * (p.out_h / p.in_h) + scaled(row, p.out_h % p.in_h, p.in_h).x;
//#else
    return first_window(row + p.padding_h, p.kernel_h, p.dilation_h, p.stride_h);
//#endif
}

// The first window along an axis that ends after `padded`, a coordinate in the padded input.
fn first_window(padded: u32, kernel: u32, dilation: u32, stride: u32) -> u32 {
    let extent = (kernel - 1u) * dilation + 1u;
    return select(0u, (padded - extent) / stride + 1u, padded >= extent);
}

// The gradient of element (row, col), from the plane of grad that starts at `base`.
fn grad_of(row: u32, col: u32, first_w: u32, base: u32) -> f32 {
    let first_h = first_window_h(row);
    var sum = 0.0;
//#if ADAPTIVE
    // The starts and the ends of the windows ascend, so the windows that contain an element are consecutive.
    for (var h = first_h; h < p.out_h && window_start(h, p.in_h, p.out_h) <= row; h++) {
        let rows = window_end(h, p.in_h, p.out_h) - window_start(h, p.in_h, p.out_h);
        if (window_end(h, p.in_h, p.out_h) <= row) { continue; }
        for (var w = first_w; w < p.out_w && window_start(w, p.in_w, p.out_w) <= col; w++) {
            let cols = window_end(w, p.in_w, p.out_w) - window_start(w, p.in_w, p.out_w);
            if (window_end(w, p.in_w, p.out_w) <= col) { continue; }
            sum += grad[base + h * p.out_w + w] / f32(rows * cols);
        }
    }
//#else
//#if DISJOINT
    if (starts_above(first_h, row) && starts_before(first_w, col)) {
        sum = grad_of_window(row, col, first_h, first_w, base);
    }
//#else
    for (var h = first_h; starts_above(h, row); h++) {
        for (var w = first_w; starts_before(w, col); w++) {
            sum += grad_of_window(row, col, h, w, base);
        }
    }
//#endif
//#endif
    return sum;
}

//#if !ADAPTIVE
// Whether there is a row h of windows that starts at or above a row.
fn starts_above(h: u32, row: u32) -> bool {
    return h < p.out_h && h * p.stride_h <= row + p.padding_h;
}

// Whether there is a column w of windows that starts at or before a column.
fn starts_before(w: u32, col: u32) -> bool {
    return w < p.out_w && w * p.stride_w <= col + p.padding_w;
}

// The part of the element's gradient from window (h, w).
fn grad_of_window(row: u32, col: u32, h: u32, w: u32, base: u32) -> f32 {
    let window = base + h * p.out_w + w;
//#if MAX
    if (indices[window] == i32(row * p.in_w + col)) { return grad[window]; }
    return 0.0;
//#else
    return grad[window] / window_count(h, w);
//#endif
}
//#endif

//#if QUADS
fn invocation(i: u32) {
    let first = i * 4u;
    var line = first / p.in_w;
    var col = first - line * p.in_w;
    var row = line % p.in_h;
    var base = line / p.in_h * p.out_h * p.out_w;
    var sums: vec4<f32>;
//#repeat I 4
    sums[I] = grad_of(row, col, first_window_w(col), base);
    col++;
    if (col == p.in_w) {
        col = 0u;
        row++;
        if (row == p.in_h) {
            row = 0u;
            base += p.out_h * p.out_w;
        }
    }
//#end
    out[i] = from_words(bitcast<vec4<u32>>(sums));
}
//#else
fn invocation(i: u32) {
    let col = i % p.in_w;
    let first_w = first_window_w(col);
    let first = i / p.in_w * LINES;
    var row = first % p.in_h;
    var base = first / p.in_h * p.out_h * p.out_w;
    for (var line = first; line < min(first + LINES, p.lines); line++) {
        out[line * p.in_w + col] = grad_of(row, col, first_w, base);
        row++;
        if (row == p.in_h) {
            row = 0u;
            base += p.out_h * p.out_w;
        }
    }
}
//#endif
//#include "lib/invocation"
