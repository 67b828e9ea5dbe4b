// interpolate: out[n, i, j] = sum over k, l of a[i, k] * b[j, l] * x[n, k, l]. Each row of the matrices
// a and b has one band of weights and is zero elsewhere. The matrices determine the mode, and whether the
// result is a gradient.

struct Params {
    // Elements of out.
    count: u32,
    in_h: u32,
    in_w: u32,
    out_h: u32,
    out_w: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
// Two words (first, start) for each row of a and for one past the last, the same for b, then all weights.
@group(0) @binding(auto) var<storage, read> matrices: array<u32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

struct Band {
    // The column of the first weight.
    first: u32,
    // The weights are in words start..end; `end` is the start of the next band.
    start: u32,
    end: u32,
}

fn band(i: u32) -> Band {
    return Band(matrices[2u * i], matrices[2u * i + 1u], matrices[2u * i + 3u]);
}

fn weight(k: u32) -> f32 {
    return bitcast<f32>(matrices[k]);
}

fn invocation(i: u32) {
    let row = band(i / p.out_w % p.out_h);
    let col = band(p.out_h + 1u + i % p.out_w);
    var line = (i / (p.out_w * p.out_h) * p.in_h + row.first) * p.in_w + col.first;
    var sum = 0.0;
    for (var j = row.start; j < row.end; j++) {
        var row_sum = 0.0;
        for (var k = col.start; k < col.end; k++) {
            row_sum += weight(k) * x[line + k - col.start];
        }
        sum += weight(j) * row_sum;
        line += p.in_w;
    }
    out[i] = sum;
}
//#include "lib/invocation"
